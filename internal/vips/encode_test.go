package vips_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/jpeg"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/image/webp"

	"pictor/internal/job"
	"pictor/internal/vips"
)

func encodeJPEG(t testing.TB, p *vips.Picture, quality int) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.jpg")
	if err := vips.EncodeJPEG(t.Context(), rawFile(t, p), out, quality, nil); err != nil {
		t.Fatal(err)
	}
	return readFile(t, out)
}

func encodeWebP(t testing.TB, p *vips.Picture, as vips.WebP) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.webp")
	if err := vips.EncodeWebP(t.Context(), rawFile(t, p), out, as, nil); err != nil {
		t.Fatal(err)
	}
	return readFile(t, out)
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEncodeJPEG_keeps_colour_at_full_resolution(t *testing.T) {
	t.Parallel()
	for _, want := range []*vips.Picture{cat(t), grey(cat(t)), decode(t, photo(t, "rocket.jpg"))} {
		t.Run(fmt.Sprint(want.Width, " x ", want.Height, " of ", want.Bands), func(t *testing.T) {
			t.Parallel()
			b := encodeJPEG(t, want, 92)
			m, err := jpeg.Decode(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			samePicture(t, want, fromImage(m, want.Bands), tolerance{worst: 45, mean: 3, shift: 0.3})
			samePicture(t, want, decode(t, b), tolerance{worst: 45, mean: 3, shift: 0.3})
		})
	}
	t.Run("red on blue", func(t *testing.T) {
		t.Parallel()
		// One column each: halved colour would make violet of it.
		want := &vips.Picture{Width: 32, Height: 32, Bands: 3}
		for i := range 32 * 32 {
			want.Pix = append(want.Pix, [][]byte{{200, 30, 30}, {30, 30, 200}}[i%2]...)
		}
		samePicture(t, want, decode(t, encodeJPEG(t, want, 92)), tolerance{worst: 30, mean: 8, shift: 4})
	})
}

func TestEncoders_write_no_metadata(t *testing.T) {
	t.Parallel()
	for _, p := range []*vips.Picture{cat(t), withAlpha(cat(t)), grey(cat(t))} {
		if p.Bands < 4 {
			b := encodeJPEG(t, p, 90)
			for _, mark := range []string{"Exif", "ICC_PROFILE", "http", "Photoshop"} {
				if bytes.Contains(b, []byte(mark)) {
					t.Errorf("the JPEG holds %s", mark)
				}
			}
		}
		for _, lossless := range []bool{false, true} {
			b := encodeWebP(t, p, vips.WebP{Quality: 90, Lossless: lossless})
			// libvips 8.14 wrote EXIF into a WebP that it was told to strip.
			for _, mark := range []string{"EXIF", "ICCP", "XMP "} {
				if bytes.Contains(b, []byte(mark)) {
					t.Errorf("the WebP holds %s", mark)
				}
			}
			if _, err := webp.Decode(bytes.NewReader(b)); err != nil {
				t.Errorf("another decoder refuses the WebP: %v", err)
			}
		}
	}
}

func TestEncodeWebP(t *testing.T) {
	t.Parallel()
	t.Run("without loss", func(t *testing.T) {
		t.Parallel()
		want := cat(t)
		b := encodeWebP(t, want, vips.WebP{Lossless: true, Quality: 75})
		m, err := webp.Decode(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		samePicture(t, want, fromImage(m, 3), exact)
		samePicture(t, want, decode(t, b), exact)
	})
	t.Run("with loss", func(t *testing.T) {
		t.Parallel()
		want := cat(t)
		samePicture(t, want, decode(t, encodeWebP(t, want, vips.WebP{Quality: 92})), tolerance{worst: 60, mean: 3, shift: 0.5})
	})
	t.Run("alpha stays exact", func(t *testing.T) {
		t.Parallel()
		want := withAlpha(cat(t))
		got := decode(t, encodeWebP(t, want, vips.WebP{Quality: 92}))
		samePicture(t, mapPixels(want, 1, alphaOf), mapPixels(got, 1, alphaOf), exact)
	})
	t.Run("grey becomes RGB without a colour", func(t *testing.T) {
		t.Parallel()
		got := decode(t, encodeWebP(t, grey(cat(t)), vips.WebP{Quality: 92}))
		for i := 0; i < len(got.Pix); i += 3 {
			c := got.Pix[i : i+3]
			if slices.Max(c)-slices.Min(c) > 1 { // libwebp's rounding
				t.Fatalf("pixel %d has the colour %v", i/3, c)
			}
		}
	})
}

// At efforts 0 and 1 libwebp worked through such a picture and then failed with
// "unable to encode": a photograph of 24 megapixels did the same.
func TestEncodeWebP_of_texture_succeeds_at_every_size(t *testing.T) {
	t.Parallel()
	small := decode(t, photo(t, "chelsea.png"))
	random := rand.New(rand.NewPCG(7, 8))
	p := &vips.Picture{Width: 4000, Height: 4000, Bands: 3, Pix: make([]byte, 3*4000*4000)}
	for i := range p.Width * p.Height {
		from := small.Pix[(i/p.Width%small.Height*small.Width+i%p.Width%small.Width)*3:]
		noise := int(random.Uint32()%40) - 20
		for c := range 3 {
			p.Pix[3*i+c] = byte(max(0, min(255, int(from[c])+noise)))
		}
	}
	b := encodeWebP(t, p, vips.WebP{Quality: 90, Effort: 0})
	h, err := vips.ReadHeader(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(vips.Header{Type: job.WebP, Width: 4000, Height: 4000, Frames: 1}, h); diff != "" {
		t.Error(diff)
	}
}

func TestEncoders_of_extreme_shapes(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{1, 1}, {1, 5000}, {5000, 1}} {
		want := &vips.Picture{Width: size[0], Height: size[1], Bands: 3, Pix: bytes.Repeat([]byte{90, 120, 150}, size[0]*size[1])}
		samePicture(t, want, decode(t, encodeJPEG(t, want, 92)), tolerance{worst: 3, mean: 2, shift: 2})
		samePicture(t, want, decode(t, encodeWebP(t, want, vips.WebP{Quality: 92})), tolerance{worst: 4, mean: 3, shift: 3})
	}
}

func TestEncoders_say_what_they_cannot_do(t *testing.T) {
	t.Parallel()
	p := cat(t)
	raw := rawFile(t, p)
	alpha := rawFile(t, withAlpha(p))
	wide := rawFile(t, &vips.Picture{Width: 16384, Height: 1, Bands: 3, Pix: make([]byte, 3*16384)})
	missing := vips.RawFile{Path: filepath.Join(t.TempDir(), "none"), Width: 1, Height: 1, Bands: 3}
	short := raw
	short.Height++
	out := filepath.Join(t.TempDir(), "out")
	for name, err := range map[string]error{
		"JPEG with alpha":       vips.EncodeJPEG(t.Context(), alpha, out, 90, nil),
		"JPEG of nothing":       vips.EncodeJPEG(t.Context(), missing, out, 90, nil),
		"JPEG of too little":    vips.EncodeJPEG(t.Context(), short, out, 90, nil),
		"JPEG into nothing":     vips.EncodeJPEG(t.Context(), raw, filepath.Join(out, "no", "folder"), 90, nil),
		"WebP of nothing":       vips.EncodeWebP(t.Context(), missing, out, vips.WebP{}, nil),
		"WebP of too little":    vips.EncodeWebP(t.Context(), short, out, vips.WebP{}, nil),
		"WebP that is too wide": vips.EncodeWebP(t.Context(), wide, out, vips.WebP{}, nil),
		"WebP into nothing":     vips.EncodeWebP(t.Context(), raw, filepath.Join(out, "no", "folder"), vips.WebP{}, nil),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The encoders work for seconds after the last pixel is known. They once said
// nothing in that time, and could not be stopped.
func TestEncode_reports_growing_progress(t *testing.T) {
	t.Parallel()
	raw, out := rawFile(t, noisy(500, 2000)), filepath.Join(t.TempDir(), "out")
	for name, encode := range map[string]func(func(int)) error{
		"JPEG": func(progress func(int)) error { return vips.EncodeJPEG(t.Context(), raw, out+".jpg", 90, progress) },
		"WebP": func(progress func(int)) error {
			return vips.EncodeWebP(t.Context(), raw, out+".webp", vips.WebP{Quality: 80}, progress)
		},
	} {
		reported := []int{0}
		err := encode(func(percent int) {
			if last := reported[len(reported)-1]; percent <= last || percent > 100 {
				t.Errorf("%s: %d %% after %d %%", name, percent, last)
			}
			reported = append(reported, percent)
		})
		if err != nil || len(reported) < 10 {
			t.Errorf("%s: reported %v, and %v", name, reported, err)
		}
	}
}

func TestEncode_stops_when_cancelled(t *testing.T) {
	t.Parallel()
	raw, out := rawFile(t, noisy(500, 2000)), filepath.Join(t.TempDir(), "out")
	for name, encode := range map[string]func(context.Context, func(int)) error{
		"JPEG": func(ctx context.Context, progress func(int)) error {
			return vips.EncodeJPEG(ctx, raw, out+".jpg", 90, progress)
		},
		"WebP": func(ctx context.Context, progress func(int)) error {
			return vips.EncodeWebP(ctx, raw, out+".webp", vips.WebP{Quality: 80}, progress)
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		last := 0
		err := encode(ctx, func(percent int) {
			last = percent
			if percent >= 10 {
				cancel()
			}
		})
		if !errors.Is(err, context.Canceled) || last > 50 {
			t.Errorf("%s: went on to %d %% and %v", name, last, err)
		}
		if err := encode(ctx, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: began although cancelled: %v", name, err)
		}
	}
}

// noisy is a picture that does not compress.
func noisy(w, h int) *vips.Picture {
	p := &vips.Picture{Width: w, Height: h, Bands: 3, Pix: make([]byte, 3*w*h)}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range p.Pix {
		p.Pix[i] = byte(r.Uint32())
	}
	return p
}
