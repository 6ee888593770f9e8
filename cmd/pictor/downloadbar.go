package main

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// downloadBar shows how far a download is: a bar on a terminal, a line for
// every tenth elsewhere.
type downloadBar struct {
	w        io.Writer
	name     string
	terminal bool
	bar      *progressbar.ProgressBar
	tenth    int64
}

func newDownloadBar(w io.Writer, name string) *downloadBar {
	return &downloadBar{w: w, name: name, terminal: isTerminal(w)}
}

func (b *downloadBar) update(done, whole int64) {
	if !b.terminal {
		if whole > 0 && done*10/whole > b.tenth {
			b.tenth = done * 10 / whole
			fmt.Fprintf(b.w, "%s: %d%% of %.1f MB\n", b.name, 10*b.tenth, float64(whole)/1e6)
		}
		return
	}
	if whole == 0 {
		whole = -1 // a bar without an end
	}
	if b.bar == nil {
		b.bar = progressbar.NewOptions64(whole,
			progressbar.OptionSetDescription(b.name), progressbar.OptionSetWriter(b.w),
			progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetPredictTime(true), progressbar.OptionSetWidth(24), progressbar.OptionShowTotalBytes(true), progressbar.OptionClearOnFinish())
	}
	_ = b.bar.Set64(done)
}

// clear takes the bar away.
func (b *downloadBar) clear() {
	if b.bar != nil {
		_ = b.bar.Clear()
	}
}
