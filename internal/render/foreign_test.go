package render_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pictor/internal/job"
	"pictor/internal/models"
	"pictor/internal/onnx"
	"pictor/internal/render"
	"pictor/internal/testkit/onnxfile"
	"pictor/internal/vips"
)

// catalogued is an entry of the catalogue with a file of the test's own in
// place of the published one, which is too large to download.
func catalogued(t testing.TB, name string, file []byte) models.Description {
	t.Helper()
	for _, d := range models.All(t.TempDir()) {
		if d.Name != name {
			continue
		}
		sum := fmt.Sprintf("%x  %s\n", sha256.Sum256(file), d.File)
		for path, b := range map[string][]byte{d.Path: file, d.Path + ".sha256": []byte(sum)} {
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return d
	}
	t.Fatalf("the catalogue has no %s", name)
	return models.Description{}
}

// faked is an entry of the catalogue for a fake engine, with a small side.
func faked(t testing.TB, name string) models.Description {
	t.Helper()
	d := catalogued(t, name, []byte("a fake engine reads no file"))
	d.Side = 128
	return d
}

// masks are the models of remove-bg, one of each family, with networks of their
// structure for a side. The catalogue's test holds the others of a family to be
// handled alike.
func masks() map[string]func(side int) []byte {
	return map[string]func(side int) []byte{
		"u2netp":            func(side int) []byte { return onnxfile.U2Net(side, 8) },
		"isnet-general-use": func(side int) []byte { return onnxfile.ISNet(side, 16) },
		"isnet-anime":       func(side int) []byte { return onnxfile.ISNet(side, 16) },
		"birefnet-general":  onnxfile.BiRefNet,
		"BEN2":              onnxfile.BEN2,
	}
}

// using renders with one model.
func using(t testing.TB, e onnx.Engine, d models.Description) *render.Renderer {
	t.Helper()
	r, err := render.New(render.Config{Engine: e, Models: []models.Description{d}, Threads: 2, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func engine(t testing.TB, name string) onnx.Engine {
	t.Helper()
	e, err := onnx.Open(onnx.Config{Engine: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// The reference is the model run by hand: pixels prepared and values read as
// the model's authors write it, in plain loops. One model has its true side, the
// others a smaller one, which is handled alike.
func TestRemoveBG_with_each_foreign_model_equals_a_reference(t *testing.T) {
	t.Parallel()
	e := engine(t, onnx.Runtime)
	original := decoded(t, photo(t, "rocket.jpg"))
	for name, file := range masks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			side := 256
			if name == "isnet-general-use" {
				side = 1024
			}
			d := catalogued(t, name, file(side))
			d.Side = side
			p := stretched(original, d.Side, d.Side) // every pixel is one of the model's
			if d.Letterbox {
				p = stretched(original, d.Side, d.Side/2)
			}
			got, _ := rendered(t, using(t, e, d), job.RemoveBG, asPNG(t, p))
			want := byHand(t, e, d, p)
			if d.Coarse {
				// The mask is refined as that of the shipped model: where it is
				// sure, it must stay what it was.
				agrees(t, want, got)
				return
			}
			for i, w := range want {
				if a := float64(got.Pix[4*i+3]) / 255; math.Abs(a-w) > 1.5/255 {
					t.Fatalf("alpha of pixel %d is %.4f, want %.4f", i, a, w)
				}
			}
		})
	}
}

// byHand is the mask of a picture that fills the model's view.
func byHand(t *testing.T, e onnx.Engine, d models.Description, p *vips.Picture) []float64 {
	t.Helper()
	side := d.Side
	in, out := onnx.NewTensor(1, 3, side, side), onnx.NewTensor(1, 1, side, side)
	top := (side - p.Height) / 2
	divisor := 255.
	if strings.HasPrefix(d.Name, "u2net") {
		divisor = 0
		for _, v := range p.Pix {
			divisor = max(divisor, float64(v))
		}
	}
	mean, std := [3]float64{}, [3]float64{1, 1, 1}
	switch {
	case strings.HasPrefix(d.Name, "u2net"), strings.HasPrefix(d.Name, "birefnet"):
		mean, std = [3]float64{0.485, 0.456, 0.406}, [3]float64{0.229, 0.224, 0.225}
	case d.Name == "isnet-general-use":
		mean = [3]float64{0.5, 0.5, 0.5}
	}
	for c := range 3 {
		for y := range p.Height {
			for x := range p.Width {
				v := float64(p.Pix[3*(y*p.Width+x)+c]) / divisor
				in.Data[(c*side+top+y)*side+x] = float32((v - mean[c]) / std[c])
			}
		}
	}
	file, err := d.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	m, err := e.Load(d.Name, file, onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Run(t.Context(), in, out); err != nil {
		t.Fatal(err)
	}
	mask := make([]float64, p.Width*p.Height)
	least, greatest := math.Inf(1), math.Inf(-1)
	for i := range mask {
		mask[i] = float64(out.Data[top*side+i])
		if strings.HasPrefix(d.Name, "birefnet") {
			mask[i] = 1 / (1 + math.Exp(-mask[i]))
		}
		least, greatest = min(least, mask[i]), max(greatest, mask[i])
	}
	if greatest-least < 0.2 {
		t.Fatalf("the mask spans %.2f..%.2f: it says nothing", least, greatest)
	}
	for i := range mask {
		if d.Name != "isnet-anime" {
			mask[i] = (mask[i] - least) / (greatest - least)
		}
		if !d.Coarse {
			mask[i] = min(max((mask[i]-1./64)/(1-2./64), 0), 1)
		}
	}
	return mask
}

// agrees compares where the mask is sure, far from its contour.
func agrees(t *testing.T, mask []float64, got *vips.Picture) {
	t.Helper()
	var sure, right int
	for i, v := range mask {
		if v < 0.02 || v > 0.98 {
			sure++
			if (v > 0.5) == (got.Pix[4*i+3] > 127) {
				right++
			}
		}
	}
	if sure < 100 || right < sure*9/10 {
		t.Errorf("of %d sure pixels %d stayed", sure, right)
	}
}

// The tensor that a model gets: squashed or letterboxed, of the picture at full
// size and not of the smaller one that edges are refined on.
func TestRemoveBG_shows_each_foreign_model_the_whole_picture(t *testing.T) {
	t.Parallel()
	// Four flat quarters, darker than white.
	colours := [4][3]byte{{200, 40, 10}, {30, 190, 60}, {20, 50, 180}, {100, 100, 100}}
	for name := range masks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := faked(t, name)
			if name == "isnet-general-use" {
				d.Side = 1024
			}
			w, h := 2*d.Side, d.Side/2
			in := asPNG(t, newPicture(w, h, 3, func(x, y int) []byte { return colours[2*x/w+2*(2*y/h)][:] }))
			seen := 0
			r := using(t, fakeEngine(func(_ context.Context, in, out onnx.Tensor) error {
				seen++
				for quarter, colour := range colours {
					x, y := d.Side/4+quarter%2*d.Side/2, d.Side/4+quarter/2*d.Side/2
					if d.Letterbox { // a quarter of the height is left, in the middle
						y = d.Side*7/16 + quarter/2*d.Side/8
					}
					for c, v := range colour {
						want := (float64(v)/255 - float64(d.Mean[c])) / float64(d.Std[c])
						if d.Brightest {
							want = (float64(v)/200 - float64(d.Mean[c])) / float64(d.Std[c])
						}
						if got := in.Data[(c*d.Side+y)*d.Side+x]; math.Abs(float64(got)-want) > 1e-4 {
							t.Errorf("band %d at %d, %d is %v, want %v", c, x, y, got, want)
						}
					}
				}
				if corner := in.Data[0]; d.Letterbox && corner != 0 {
					t.Errorf("beside the picture is %v", corner)
				}
				return nil
			}), d)
			rendered(t, r, job.RemoveBG, in)
			if seen != 1 {
				t.Errorf("the model was asked %d times", seen)
			}
		})
	}
}

// Stretching a mask that shows nothing would make a subject of noise, and a
// constant one would divide by zero.
func TestRemoveBG_of_foreign_models_completes_whatever_they_see(t *testing.T) {
	t.Parallel()
	in := photo(t, "cup.png")
	for name := range masks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := faked(t, name)
			no, yes := float32(0), float32(1)
			if d.Sigmoid {
				no, yes = -20, 20
			}
			for _, test := range []struct {
				what   string
				values func(i int) float32
				alpha  byte
			}{
				{"nothing", func(int) float32 { return no }, 0},
				{"everything", func(int) float32 { return yes }, 255},
				{"next to nothing", func(i int) float32 { return no + 0.01*float32(i%2) }, 0},
				{"nearly everything", func(i int) float32 { return yes - 0.01*float32(i%2) }, 255},
			} {
				r := using(t, fakeEngine(func(_ context.Context, _, out onnx.Tensor) error {
					for i := range out.Data {
						out.Data[i] = test.values(i)
					}
					return nil
				}), d)
				got, _ := rendered(t, r, job.RemoveBG, in)
				for i := 3; i < len(got.Pix); i += 4 {
					if got.Pix[i] != test.alpha {
						t.Fatalf("%s: alpha %d at pixel %d, want %d", test.what, got.Pix[i], i/4, test.alpha)
					}
				}
			}
		})
	}
}

func TestRemoveBG_of_foreign_models_takes_any_shape(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"u2netp", "isnet-general-use", "isnet-anime"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := faked(t, name)
			r := using(t, fakeEngine(func(_ context.Context, in, out onnx.Tensor) error {
				copy(out.Data, in.Data)
				return nil
			}), d)
			for _, size := range [][2]int{{1, 1}, {2, 3}, {1, 5000}, {5000, 1}, {1500, 7}} {
				for bands := 1; bands <= 4; bands++ {
					p := newPicture(size[0], size[1], bands, func(x, y int) []byte { return []byte{byte(x), byte(y), byte(x * y), byte(x + y)}[:bands] })
					if got, _ := rendered(t, r, job.RemoveBG, asPNG(t, p)); got.Width != size[0] || got.Height != size[1] || got.Bands != 4 {
						t.Errorf("%v with %d bands became %d x %d with %d", size, bands, got.Width, got.Height, got.Bands)
					}
				}
			}
		})
	}
}

// A mask that is larger than the picture is averaged, not picked from.
func TestRemoveBG_averages_a_mask_larger_than_the_picture(t *testing.T) {
	t.Parallel()
	d := faked(t, "isnet-general-use")
	r := using(t, fakeEngine(func(_ context.Context, _, out onnx.Tensor) error {
		for i := range out.Data {
			out.Data[i] = float32((i%d.Side/2 + i/d.Side/2) % 2) // a chequerboard of 2 pixels
		}
		return nil
	}), d)
	p := newPicture(32, 32, 3, func(x, y int) []byte { return []byte{90, 90, 90} })
	got, _ := rendered(t, r, job.RemoveBG, asPNG(t, p))
	for i := 3; i < len(got.Pix); i += 4 {
		if got.Pix[i] < 126 || got.Pix[i] > 129 {
			t.Fatalf("alpha of pixel %d is %d, want a half", i/4, got.Pix[i])
		}
	}
}

// BiRefNet takes 8 gigabytes for one picture: several at a time would take the
// machine down.
func TestRemoveBG_runs_a_model_that_needs_all_memory_alone(t *testing.T) {
	t.Parallel()
	d := faked(t, "birefnet-general")
	if !d.Alone {
		t.Fatal("the catalogue does not say so")
	}
	in := photo(t, "cup.png")
	var running atomic.Int32
	r := using(t, fakeEngine(func(_ context.Context, _, out onnx.Tensor) error {
		if running.Add(1) > 1 {
			t.Error("two runs at a time")
		}
		clear(out.Data)
		runtime.Gosched()
		running.Add(-1)
		return nil
	}), d)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := r.Render(t.Context(), job.RemoveBG, in, &bytes.Buffer{}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestNew_refuses_a_transformer_on_the_portable_engine(t *testing.T) {
	t.Parallel()
	e := engine(t, onnx.Go)
	for name := range masks() {
		d := catalogued(t, name, []byte("no model"))
		_, err := render.New(render.Config{Engine: e, Models: []models.Description{d}})
		if wants := err != nil && strings.Contains(err.Error(), "needs ONNX Runtime"); wants != d.RuntimeOnly || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNew_refuses_a_file_of_another_size(t *testing.T) {
	t.Parallel()
	d := catalogued(t, "isnet-general-use", onnxfile.ISNet(320, 16))
	_, err := render.New(render.Config{Engine: engine(t, onnx.Runtime), Models: []models.Description{d}})
	if err == nil || !strings.Contains(err.Error(), "[1 3 320 320]: want [1 3 1024 1024]") {
		t.Errorf("got %v", err)
	}
}

func TestRemoveBG_of_a_foreign_model_gives_the_same_on_the_portable_engine(t *testing.T) {
	t.Parallel()
	d := catalogued(t, "u2netp", onnxfile.U2Net(96, 8))
	d.Side = 96
	in := photo(t, "cup.png")
	want, _ := rendered(t, using(t, engine(t, onnx.Runtime), d), job.RemoveBG, in)
	got, _ := rendered(t, using(t, engine(t, onnx.Go), d), job.RemoveBG, in)
	if mean, _ := distance(t, want, got); mean > 0.1 {
		t.Errorf("the engines' results differ by %.2f on average", mean)
	}
}

// enlargers are the models of upscaling, with networks of their structure whose
// blocks are so few that the margin covers what a pixel depends on. That of
// realesr-general-x4v3 has as many convolutions as the real one.
func enlargers() map[string]func() []byte {
	return map[string]func() []byte{
		"RealESRGAN_x2plus":          func() []byte { return onnxfile.RRDB(2, 4, 1) },
		"RealESRGAN_x4plus":          func() []byte { return onnxfile.RRDB(4, 4, 1) },
		"RealESRGAN_x4plus_anime_6B": func() []byte { return onnxfile.RRDB(4, 2, 2) },
		"realesr-general-x4v3":       func() []byte { return onnxfile.SRVGG(6, 32) },
	}
}

// Odd sides and tiles that are shifted inwards: a model that makes four channels
// of each square of pixels must find the same squares in every tile.
func TestUpscale_with_each_foreign_model_shows_no_seams(t *testing.T) {
	t.Parallel()
	e := engine(t, onnx.Runtime)
	for name, file := range enlargers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := catalogued(t, name, file())
			p := cropped(decoded(t, photo(t, "rocket.jpg")), 331, 259)
			want := untiled(t, d, p)
			got, _ := rendered(t, using(t, e, d), d.Task, asPNG(t, p))
			if mean, largest := distance(t, want, got); largest > 1 {
				saveDifference(t, t.Name(), want, got)
				t.Errorf("tiled differs from untiled by up to %d, %.4f on average", largest, mean)
			}
		})
	}
}

func TestUpscale_of_foreign_models_takes_any_shape(t *testing.T) {
	t.Parallel()
	e := engine(t, onnx.Runtime)
	for name, file := range enlargers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := catalogued(t, name, file())
			r := using(t, e, d)
			for _, size := range [][2]int{{1, 1}, {3, 2}, {1, 301}, {301, 1}} {
				p := newPicture(size[0], size[1], 4, func(x, y int) []byte { return []byte{byte(x), byte(7 * y), byte(x + y), byte(200 + x*y)} })
				var out bytes.Buffer
				if got, err := r.Render(t.Context(), d.Task, asPNG(t, p), &out, nil); err != nil || got.Width != d.Scale*size[0] || got.Height != d.Scale*size[1] {
					t.Errorf("%v became %v, %v", size, got, err)
				}
			}
		})
	}
}
