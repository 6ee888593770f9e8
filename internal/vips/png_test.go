package vips_test

import (
	"bytes"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math/rand/v2"
	"testing"

	"pictor/internal/vips"
)

// writePNG pushes the picture in pieces of the given number of rows.
func writePNG(t testing.TB, w io.Writer, p *vips.Picture, rows int, opt vips.PNGOptions) error {
	t.Helper()
	out, err := vips.NewPNGWriter(w, p.Width, p.Height, p.Bands, opt)
	if err != nil {
		return err
	}
	for piece := p.Pix; len(piece) > 0; {
		n := min(len(piece), rows*p.Width*p.Bands)
		if err := out.WriteRows(piece[:n]); err != nil {
			return err
		}
		piece = piece[n:]
	}
	return out.Close()
}

func TestPNGWriter_is_read_back_bit_by_bit(t *testing.T) {
	t.Parallel()
	rgb := decode(t, photo(t, "chelsea.png"))
	noise := &vips.Picture{Width: 701, Height: 900, Bands: 4}
	random := rand.New(rand.NewPCG(3, 4))
	for range noise.Width * noise.Height * noise.Bands {
		noise.Pix = append(noise.Pix, byte(random.Uint32()))
	}
	for name, p := range map[string]*vips.Picture{
		"grey": grey(rgb), "grey and alpha": withAlpha(grey(rgb)), "RGB": rgb, "RGB and alpha": withAlpha(rgb),
		"noise of several strips": noise,
		"one pixel":               crop(rgb, 9, 9, 1, 1),
		"one column":              {Width: 1, Height: 5000, Bands: 3, Pix: noise.Pix[:15000]},
		"one row":                 {Width: 5000, Height: 1, Bands: 3, Pix: noise.Pix[:15000]},
		"rows wider than a strip": {Width: 400_000, Height: 1, Bands: 4, Pix: noise.Pix[:1_600_000]},
		"one value":               {Width: 3000, Height: 1000, Bands: 1, Pix: make([]byte, 3_000_000)},
	} {
		for rows, opt := range map[int]vips.PNGOptions{1: {}, 7: {Level: 1, Threads: 2}, 64: {Level: 6, Threads: 5}, p.Height: {Level: 9, Threads: 1}} {
			t.Run(fmt.Sprint(name, opt, rows), func(t *testing.T) {
				t.Parallel()
				var b bytes.Buffer
				if err := writePNG(t, &b, p, rows, opt); err != nil {
					t.Fatal(err)
				}
				samePicture(t, p, decode(t, b.Bytes()), exact)
				m, err := png.Decode(&b)
				if err != nil {
					t.Fatal(err)
				}
				samePicture(t, p, fromImage(m, p.Bands), exact)
			})
		}
	}
}

// The caller fills the same buffer again and again.
func TestPNGWriter_keeps_no_hold_of_rows(t *testing.T) {
	t.Parallel()
	want := decode(t, photo(t, "chelsea.png"))
	var b bytes.Buffer
	out, err := vips.NewPNGWriter(&b, want.Width, want.Height, want.Bands, vips.PNGOptions{Threads: 3})
	if err != nil {
		t.Fatal(err)
	}
	row := make([]byte, want.Width*want.Bands)
	for y := range want.Height {
		copy(row, want.Pix[y*len(row):])
		if err := out.WriteRows(row); err != nil {
			t.Fatal(err)
		}
		clear(row)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	samePicture(t, want, decode(t, b.Bytes()), exact)
}

func TestPNGWriter_is_hardly_larger_than_the_best_that_libvips_does(t *testing.T) {
	t.Parallel()
	var ours bytes.Buffer
	if err := writePNG(t, &ours, decode(t, photo(t, "astronaut.jpg")), 16, vips.PNGOptions{}); err != nil {
		t.Fatal(err)
	}
	theirs := bimgPNG(t, photo(t, "astronaut.jpg"))
	if ours.Len() > len(theirs)*107/100 {
		t.Errorf("%d bytes, libvips at level 6 with all filters %d", ours.Len(), len(theirs))
	}
}

// brokenPipe fails after some bytes.
type brokenPipe struct{ left int }

var errPipe = errors.New("the pipe is broken")

func (p *brokenPipe) Write(b []byte) (int, error) {
	if p.left -= len(b); p.left < 0 {
		return 0, errPipe
	}
	return len(b), nil
}

func TestPNGWriter_returns_the_error_of_its_writer(t *testing.T) {
	t.Parallel()
	noise := &vips.Picture{Width: 2000, Height: 2000, Bands: 3, Pix: make([]byte, 12_000_000)}
	random := rand.New(rand.NewPCG(5, 6))
	for i := range noise.Pix {
		noise.Pix[i] = byte(random.Uint32())
	}
	for _, n := range []int{0, 10, 40, 50_000, 3_000_000, 11_900_000} {
		if err := writePNG(t, &brokenPipe{left: n}, noise, 100, vips.PNGOptions{Threads: 2}); !errors.Is(err, errPipe) {
			t.Errorf("after %d bytes: got %v, want %v", n, err, errPipe)
		}
	}
}

func TestPNGWriter_refuses_rows_that_do_not_fit(t *testing.T) {
	t.Parallel()
	open := func() *vips.PNGWriter {
		out, err := vips.NewPNGWriter(io.Discard, 10, 10, 3, vips.PNGOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	t.Run("half a row", func(t *testing.T) {
		if err := open().WriteRows(make([]byte, 45)); err == nil {
			t.Error("no error")
		}
	})
	t.Run("a row too many", func(t *testing.T) {
		if err := open().WriteRows(make([]byte, 330)); err == nil {
			t.Error("no error")
		}
	})
	t.Run("closed too early", func(t *testing.T) {
		out := open()
		if err := out.WriteRows(make([]byte, 270)); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err == nil {
			t.Error("no error")
		}
	})
	t.Run("after the end", func(t *testing.T) {
		out := open()
		if err := out.WriteRows(make([]byte, 300)); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		if err := out.WriteRows(make([]byte, 30)); err == nil {
			t.Error("no error")
		}
	})
	for _, size := range [][3]int{{0, 1, 3}, {1, 0, 3}, {1, 1, 0}, {1, 1, 5}, {-1, 1, 3}} {
		if _, err := vips.NewPNGWriter(io.Discard, size[0], size[1], size[2], vips.PNGOptions{}); err == nil {
			t.Errorf("%v: no error", size)
		}
	}
	if err := writePNG(t, io.Discard, cat(t), 1, vips.PNGOptions{Level: 10}); err == nil {
		t.Error("level 10: no error")
	}
}
