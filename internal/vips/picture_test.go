package vips_test

import (
	"bytes"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pictor/internal/vips"
)

// photo reads a picture of testdata/images.
func photo(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../testdata/images", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func decode(t testing.TB, b []byte) *vips.Picture {
	t.Helper()
	p, err := vips.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// cat is an odd-sized detail of a photograph, RGB: its size divides into no
// strip or block of any codec.
func cat(t testing.TB) *vips.Picture {
	t.Helper()
	return crop(decode(t, photo(t, "chelsea.png")), 120, 60, 157, 103)
}

func crop(p *vips.Picture, left, top, width, height int) *vips.Picture {
	c := &vips.Picture{Width: width, Height: height, Bands: p.Bands}
	for y := range height {
		from := ((top+y)*p.Width + left) * p.Bands
		c.Pix = append(c.Pix, p.Pix[from:from+width*p.Bands]...)
	}
	return c
}

// mapPixels makes a picture of other bands out of p.
func mapPixels(p *vips.Picture, bands int, f func(x, y int, pixel []byte) []byte) *vips.Picture {
	q := &vips.Picture{Width: p.Width, Height: p.Height, Bands: bands}
	for y := range p.Height {
		for x := range p.Width {
			i := (y*p.Width + x) * p.Bands
			q.Pix = append(q.Pix, f(x, y, p.Pix[i:i+p.Bands])...)
		}
	}
	return q
}

func grey(p *vips.Picture) *vips.Picture {
	return mapPixels(p, 1, func(_, _ int, c []byte) []byte { return []byte{c[1]} })
}

// withAlpha adds a soft edge, from transparent on the left to opaque.
func withAlpha(p *vips.Picture) *vips.Picture {
	return mapPixels(p, p.Bands+1, func(x, y int, c []byte) []byte {
		return append(append([]byte{}, c...), byte(min(255, x*3+y%2)))
	})
}

func toImage(p *vips.Picture) image.Image {
	area := image.Rect(0, 0, p.Width, p.Height)
	switch p.Bands {
	case 1:
		return &image.Gray{Pix: p.Pix, Stride: p.Width, Rect: area}
	case 4:
		return &image.NRGBA{Pix: p.Pix, Stride: 4 * p.Width, Rect: area}
	}
	m := image.NewNRGBA(area)
	for i := range p.Width * p.Height {
		c := p.Pix[i*p.Bands:]
		if p.Bands == 2 {
			copy(m.Pix[4*i:], []byte{c[0], c[0], c[0], c[1]})
		} else {
			copy(m.Pix[4*i:], []byte{c[0], c[1], c[2], 255})
		}
	}
	return m
}

func fromImage(m image.Image, bands int) *vips.Picture {
	p := &vips.Picture{Width: m.Bounds().Dx(), Height: m.Bounds().Dy(), Bands: bands}
	for y := range p.Height {
		for x := range p.Width {
			c := color.NRGBAModel.Convert(m.At(m.Bounds().Min.X+x, m.Bounds().Min.Y+y)).(color.NRGBA)
			p.Pix = append(p.Pix, [][]byte{{}, {c.G}, {c.G, c.A}, {c.R, c.G, c.B}, {c.R, c.G, c.B, c.A}}[bands]...)
		}
	}
	return p
}

func asPNG(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func asJPEG(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, &jpeg.Options{Quality: 97}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// asWebP encodes without loss.
func asWebP(t testing.TB, p *vips.Picture) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.webp")
	if err := vips.EncodeWebP(t.Context(), rawFile(t, p), out, vips.WebP{Lossless: true, Quality: 100}, nil); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func rawFile(t testing.TB, p *vips.Picture) vips.RawFile {
	t.Helper()
	raw := vips.RawFile{Path: filepath.Join(t.TempDir(), "pixels"), Width: p.Width, Height: p.Height, Bands: p.Bands}
	if err := os.WriteFile(raw.Path, p.Pix, 0o600); err != nil {
		t.Fatal(err)
	}
	return raw
}

// tolerance is how far two pictures may be apart, in levels of 255.
type tolerance struct {
	worst int     // of any sample
	mean  float64 // of all samples
	shift float64 // between the mean values of a band: a cast of colour
}

var exact = tolerance{}

// samePicture compares by metric. A failing comparison leaves got, want and
// their difference, eight times as strong, as PNG files.
func samePicture(t testing.TB, want, got *vips.Picture, allowed tolerance) {
	t.Helper()
	if got.Width != want.Width || got.Height != want.Height || got.Bands != want.Bands || len(got.Pix) != len(want.Pix) {
		t.Fatalf("got %d x %d of %d bands, want %d x %d of %d", got.Width, got.Height, got.Bands, want.Width, want.Height, want.Bands)
	}
	worst, sum, shift := 0, 0, make([]int, want.Bands)
	difference := &vips.Picture{Width: want.Width, Height: want.Height, Bands: want.Bands, Pix: make([]byte, len(want.Pix))}
	for i := range want.Pix {
		d := int(got.Pix[i]) - int(want.Pix[i])
		shift[i%want.Bands] += d
		d = max(d, -d)
		worst, sum = max(worst, d), sum+d
		difference.Pix[i] = byte(min(255, 8*d))
	}
	mean, pixels := float64(sum)/float64(len(want.Pix)), float64(want.Width*want.Height)
	cast := 0.0
	for _, s := range shift {
		cast = max(cast, float64(s)/pixels, -float64(s)/pixels)
	}
	if worst <= allowed.worst && mean <= allowed.mean && cast <= allowed.shift {
		return
	}
	t.Errorf("apart by %d at worst, %.2f on average, %.2f in colour; allowed %+v", worst, mean, cast, allowed)
	for name, p := range map[string]*vips.Picture{"got": got, "want": want, "difference": difference} {
		path := filepath.Join(t.ArtifactDir(), strings.ReplaceAll(t.Name(), "/", "_")+"-"+name+".png")
		if err := os.WriteFile(path, asPNG(t, toImage(p)), 0o600); err != nil {
			t.Error(err)
		}
		t.Log("see", path)
	}
}
