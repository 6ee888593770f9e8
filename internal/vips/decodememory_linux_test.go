package vips_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/h2non/bimg"
	"github.com/klauspost/compress/zlib"

	"pictor/internal/vips"
)

// TestMain is also the process whose memory is measured.
func TestMain(m *testing.M) {
	file := os.Getenv("PICTOR_TEST_DECODE")
	if file == "" {
		os.Exit(m.Run())
	}
	b, err := os.ReadFile(file)
	if err == nil {
		_, err = vips.Decode(b)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status, _ := os.ReadFile("/proc/self/status")
	_, most, _ := strings.Cut(string(status), "VmHWM:")
	fmt.Println(strings.Fields(most)[0])
}

// peakOfDecode is the most memory that a process which only decodes the file
// ever held, in bytes.
func peakOfDecode(t testing.TB, b []byte) int {
	t.Helper()
	file := filepath.Join(t.TempDir(), "picture")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), "PICTOR_TEST_DECODE="+file)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	var kB int
	if _, err := fmt.Sscan(string(out), &kB); err != nil {
		t.Fatal(err)
	}
	return kB << 10
}

// blankPNG is an interlaced or plain PNG of 16 bits with alpha, of nothing but
// zeros: so is every row, whatever its pass.
func blankPNG(t testing.TB, side int, interlaced bool) []byte {
	t.Helper()
	size := side * (1 + 8*side)
	if interlaced {
		size = 0
		for _, pass := range [][2]int{{8, 8}, {8, 8}, {4, 8}, {4, 4}, {2, 4}, {2, 2}, {1, 2}} { // side divides by 8
			size += side / pass[1] * (1 + 8*side/pass[0])
		}
	}
	var data bytes.Buffer
	w, err := zlib.NewWriterLevel(&data, zlib.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(w, zeros{}, int64(size)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b := interlacedData(t, side, side, 16, 6, data.Bytes())
	if !interlaced {
		b[28] = 0
		copy(b[8:], pngChunk("IHDR", b[16:29]))
	}
	return b
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// libpng held all passes of an interlaced PNG, libjpeg all coefficients of a
// progressive JPEG, and libvips a second frame of a WebP: 1.3 GB, 1 GB and
// 0.9 GB for 100 megapixels of which the pixels alone take 300 MB.
func TestDecode_holds_no_second_frame(t *testing.T) {
	t.Parallel()
	const side = 2400
	p := &vips.Picture{Width: side, Height: side, Bands: 3, Pix: make([]byte, 3*side*side)}
	for i := 0; i < len(p.Pix); i += 500 {
		p.Pix[i] = byte(i >> 9) // not quite blank
	}
	plain := encodeJPEG(t, p, 95)
	progressive, err := bimg.Resize(plain, bimg.Options{Type: bimg.JPEG, Interlace: true, Quality: 95, NoAutoRotate: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name        string
		b, like     []byte
		bytesAPixel int // of what was held besides the pixels
	}{
		{"an interlaced PNG", blankPNG(t, side, true), blankPNG(t, side, false), 8},
		{"a progressive JPEG", progressive, plain, 6},
		{"a WebP", encodeWebP(t, p, vips.WebP{Quality: 80}), plain, 3},
	} {
		more, was := peakOfDecode(t, row.b)-peakOfDecode(t, row.like), row.bytesAPixel*side*side
		t.Logf("%s takes %d MB more than its like", row.name, more>>20)
		if more > was/2 {
			t.Errorf("%s takes %d MB more than its like; all at once would be %d MB", row.name, more>>20, was>>20)
		}
	}
}

// One cut-off PNG made libvips write hundreds of lines to stderr, past the log.
func TestDecode_of_bad_pictures_writes_nothing_past_the_log(t *testing.T) {
	t.Parallel()
	for name, b := range slowPictures(t, 200, 200) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "picture")
			if err := os.WriteFile(file, b[:len(b)*2/3], 0o600); err != nil {
				t.Fatal(err)
			}
			command := exec.Command(os.Args[0])
			command.Env = append(os.Environ(), "PICTOR_TEST_DECODE="+file)
			out, err := command.CombinedOutput()
			if err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "is cut off") {
				t.Errorf("%v, wrote %q, want the one line of this program", err, out)
			}
		})
	}
}
