package render_test

import (
	"bytes"
	"context"
	"flag"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pictor/internal/job"
	"pictor/internal/models"
	"pictor/internal/onnx"
	"pictor/internal/render"
	"pictor/internal/vips"
)

var update = flag.Bool("update", false, "write the goldens instead of comparing with them")

// newRenderer renders with the shipped models on ONNX Runtime.
func newRenderer(t testing.TB) *render.Renderer {
	t.Helper()
	return with(t, onnxRuntime(t))
}

func onnxRuntime(t testing.TB) onnx.Engine {
	t.Helper()
	e, err := onnx.Open(onnx.Config{Engine: onnx.Runtime})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// with renders with the engine, on two threads.
func with(t testing.TB, e onnx.Engine) *render.Renderer {
	t.Helper()
	return configured(t, render.Config{Engine: e})
}

func configured(t testing.TB, c render.Config) *render.Renderer {
	t.Helper()
	c.Threads, c.Dir = 2, t.TempDir()
	r, err := render.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		c.Engine.Close()
	})
	return r
}

// withPlainEdges is newRenderer without the refinement of edges.
func withPlainEdges(t testing.TB) *render.Renderer {
	t.Helper()
	return configured(t, render.Config{Engine: onnxRuntime(t), PlainEdges: true})
}

// withModel renders by one model, on two threads.
func withModel(t testing.TB, d models.Description) *render.Renderer {
	t.Helper()
	return configured(t, render.Config{Engine: onnxRuntime(t), Models: []models.Description{d}})
}

// rendered is the result of a task, decoded.
func rendered(t testing.TB, r *render.Renderer, task job.Task, in []byte) (*vips.Picture, render.Result) {
	t.Helper()
	var out bytes.Buffer
	result, err := r.Render(t.Context(), task, in, &out, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := vips.Sniff(out.Bytes()); !ok || got != result.Type {
		t.Fatalf("the result is %q, but called %q", got, result.Type)
	}
	p := decoded(t, out.Bytes())
	if p.Width != result.Width || p.Height != result.Height {
		t.Fatalf("the result has %d x %d pixels, but is said to have %d x %d", p.Width, p.Height, result.Width, result.Height)
	}
	return p, result
}

func decoded(t testing.TB, b []byte) *vips.Picture {
	t.Helper()
	p, err := vips.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// photo reads a picture of testdata/images.
func photo(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "images", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// photos are the names of all of testdata/images.
func photos(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join("..", "..", "testdata", "images"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".md") {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		t.Fatal("testdata/images holds no pictures")
	}
	return names
}

// newPicture draws a picture: at gives the bands of a pixel.
func newPicture(w, h, bands int, at func(x, y int) []byte) *vips.Picture {
	p := &vips.Picture{Width: w, Height: h, Bands: bands}
	for y := range h {
		for x := range w {
			p.Pix = append(p.Pix, at(x, y)...)
		}
	}
	return p
}

func asPNG(t testing.TB, p *vips.Picture) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := vips.NewPNGWriter(&b, p.Width, p.Height, p.Bands, vips.PNGOptions{})
	if err == nil {
		err = w.WriteRows(p.Pix)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// asWebP encodes without loss.
func asWebP(t testing.TB, p *vips.Picture) []byte {
	t.Helper()
	raw, out := filepath.Join(t.TempDir(), "raw"), filepath.Join(t.TempDir(), "out.webp")
	if err := os.WriteFile(raw, p.Pix, 0o600); err != nil {
		t.Fatal(err)
	}
	file := vips.RawFile{Path: raw, Width: p.Width, Height: p.Height, Bands: p.Bands}
	if err := vips.EncodeWebP(t.Context(), file, out, vips.WebP{Lossless: true}, nil); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// alphaOf is the alpha of a picture that has one, as a grey picture.
func alphaOf(p *vips.Picture) *vips.Picture {
	return newPicture(p.Width, p.Height, 1, func(x, y int) []byte {
		return []byte{p.Pix[(y*p.Width+x)*p.Bands+p.Bands-1]}
	})
}

// over is the picture as it looks on a ground of one colour.
func over(p *vips.Picture, ground [3]byte) *vips.Picture {
	return newPicture(p.Width, p.Height, 3, func(x, y int) []byte {
		px := p.Pix[(y*p.Width+x)*4:][:4]
		out := make([]byte, 3)
		for c := range out {
			out[c] = byte(math.Round((float64(px[c])*float64(px[3]) + float64(ground[c])*float64(255-px[3])) / 255))
		}
		return out
	})
}

// distance is the mean and the largest difference of two pictures, in 0..255.
func distance(t testing.TB, want, got *vips.Picture) (mean float64, largest int) {
	t.Helper()
	if want.Width != got.Width || want.Height != got.Height || want.Bands != got.Bands {
		t.Fatalf("want %d x %d pixels of %d bands, got %d x %d of %d", want.Width, want.Height, want.Bands, got.Width, got.Height, got.Bands)
	}
	for i, v := range want.Pix {
		d := int(v) - int(got.Pix[i])
		d = max(d, -d)
		mean += float64(d)
		largest = max(largest, d)
	}
	return mean / float64(len(want.Pix)), largest
}

// psnr compares luma, in dB.
func psnr(t testing.TB, want, got *vips.Picture) float64 {
	t.Helper()
	if want.Width != got.Width || want.Height != got.Height {
		t.Fatalf("want %d x %d pixels, got %d x %d", want.Width, want.Height, got.Width, got.Height)
	}
	var sum float64
	for i := range want.Width * want.Height {
		d := luma(want, i) - luma(got, i)
		sum += d * d
	}
	return 10 * math.Log10(255*255/(sum/float64(want.Width*want.Height)))
}

func luma(p *vips.Picture, i int) float64 {
	px := p.Pix[i*p.Bands:]
	if p.Bands < 3 {
		return float64(px[0])
	}
	return 0.299*float64(px[0]) + 0.587*float64(px[1]) + 0.114*float64(px[2])
}

// saveDifference keeps got, want and their difference for the eye.
func saveDifference(t testing.TB, name string, want, got *vips.Picture) {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "pictor-render-test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	pictures := map[string]*vips.Picture{"want": want, "got": got}
	if len(want.Pix) == len(got.Pix) {
		diff := &vips.Picture{Width: want.Width, Height: want.Height, Bands: want.Bands, Pix: bytes.Clone(want.Pix)}
		for i, v := range got.Pix {
			d := int(v) - int(want.Pix[i])
			diff.Pix[i] = byte(min(8*max(d, -d), 255))
		}
		if diff.Bands == 2 || diff.Bands == 4 {
			for i := diff.Bands - 1; i < len(diff.Pix); i += diff.Bands {
				diff.Pix[i] = 255
			}
		}
		pictures["diff"] = diff
	}
	for kind, p := range pictures {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "-")+"."+kind+".png")
		if err := os.WriteFile(file, asPNG(t, p), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s", kind, file)
	}
}

// toImage and fromImage lend Go's image packages a picture without alpha.
func toImage(p *vips.Picture) image.Image {
	img := image.NewRGBA(image.Rect(0, 0, p.Width, p.Height))
	for i := range p.Width * p.Height {
		px := p.Pix[i*p.Bands:]
		c := color.RGBA{px[0], px[0], px[0], 255}
		if p.Bands >= 3 {
			c = color.RGBA{px[0], px[1], px[2], 255}
		}
		img.SetRGBA(i%p.Width, i/p.Width, c)
	}
	return img
}

func fromImage(img *image.RGBA, bands int) *vips.Picture {
	size := img.Bounds().Size()
	return newPicture(size.X, size.Y, bands, func(x, y int) []byte {
		c := img.RGBAAt(x, y)
		return []byte{c.R, c.G, c.B, c.A}[:bands]
	})
}

// readPNG reads a file without libvips, so that what it holds is seen as is.
func readPNG(t testing.TB, b []byte) *image.NRGBA {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	nrgba, ok := img.(*image.NRGBA)
	if !ok {
		t.Fatalf("the PNG is a %T, want RGBA with straight alpha", img)
	}
	return nrgba
}

// fakeEngine runs a function in place of every model.
type fakeEngine func(ctx context.Context, in, out onnx.Tensor) error

func (fakeEngine) Name() string     { return "fake" }
func (fakeEngine) Provider() string { return "CPU" }
func (fakeEngine) Close() error     { return nil }

func (f fakeEngine) Load(string, []byte, onnx.Options) (onnx.Model, error) { return fakeModel{f}, nil }

type fakeModel struct{ run fakeEngine }

func (m fakeModel) Run(ctx context.Context, in, out onnx.Tensor) error { return m.run(ctx, in, out) }
func (m fakeModel) Close() error                                       { return nil }

func asJPEG(t testing.TB, p *vips.Picture) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, toImage(p), &jpeg.Options{Quality: 95}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
