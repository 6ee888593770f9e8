package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"pictor/internal/app"
)

// bar shows how far a batch is: one line that is drawn again and again on a
// terminal, one line per finished picture elsewhere.
type bar struct {
	w        io.Writer
	terminal bool
	files    []string

	mu      sync.Mutex
	percent []int
	done    int
}

func newBar(w io.Writer, files []string) *bar {
	return &bar{w: w, terminal: isTerminal(w), files: files, percent: make([]int, len(files))}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (b *bar) update(number, percent int, outcome *app.Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.percent[number] = percent
	if outcome != nil {
		b.done++
	}
	file := filepath.Base(b.files[number])
	if !b.terminal {
		if outcome != nil && outcome.Error == "" && !outcome.Skipped {
			fmt.Fprintf(b.w, "%d of %d: %s in %.1f s\n", b.done, len(b.files), file, outcome.Seconds)
		}
		return
	}
	var sum int
	for _, p := range b.percent {
		sum += p
	}
	const width = 24
	full := sum * width / (100 * len(b.files))
	fmt.Fprintf(b.w, "\r\x1b[K[%s%s] %d of %d  %s %d%%", strings.Repeat("#", full), strings.Repeat(".", width-full), b.done, len(b.files), file, percent)
}

// clear takes the line away.
func (b *bar) clear() {
	if b.terminal {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
}
