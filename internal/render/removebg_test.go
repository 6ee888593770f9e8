package render_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/job"
	"pictor/internal/onnx"
	"pictor/internal/render"
	"pictor/internal/vips"
)

// The goldens are what the shipped model gave when its cut-outs were looked at.
func TestRemoveBG_cuts_photographs_out_like_the_goldens(t *testing.T) {
	t.Parallel()
	r := newRenderer(t)
	for _, name := range []string{"astronaut.jpg", "astronaut-orientation-6.jpg", "camera.png", "chelsea.png", "coffee.webp", "coffee-alpha.webp"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, _ := rendered(t, r, job.RemoveBG, photo(t, name))
			got := alphaOf(result)
			file := filepath.Join("testdata", "golden", strings.TrimSuffix(name, filepath.Ext(name))+".alpha.png")
			if *update {
				if err := os.WriteFile(file, asPNG(t, got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want := decoded(t, b)
			if mean, _ := distance(t, want, got); mean > 1 {
				saveDifference(t, t.Name(), want, got)
				t.Errorf("alpha differs by %.2f on average, want at most 1", mean)
			}
		})
	}
}

func TestRemoveBG_keeps_opaque_colours_and_drops_transparent_ones(t *testing.T) {
	t.Parallel()
	r := newRenderer(t)
	for _, name := range photos(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := photo(t, name)
			original := decoded(t, in)
			var out bytes.Buffer
			if _, err := r.Render(t.Context(), job.RemoveBG, in, &out, nil); err != nil {
				t.Fatal(err)
			}
			img := readPNG(t, out.Bytes())
			if img.Rect.Dx() != original.Width || img.Rect.Dy() != original.Height {
				t.Fatalf("got %v, want %d x %d", img.Rect, original.Width, original.Height)
			}
			var opaque, clear int
			for i := range original.Width * original.Height {
				px, own := img.Pix[4*i:4*i+4], rgba(original, i)
				switch {
				case px[3] == 0:
					clear++
					if px[0]|px[1]|px[2] != 0 {
						t.Fatalf("pixel %d is transparent and has the colour %v", i, px)
					}
				case px[3] == 255:
					opaque++
					if !bytes.Equal(px, own[:]) {
						t.Fatalf("pixel %d is %v, was %v", i, px, own)
					}
				}
				if px[3] > own[3] {
					t.Fatalf("pixel %d has more alpha (%d) than in the original (%d)", i, px[3], own[3])
				}
			}
			if n := original.Width * original.Height; opaque < n/200 || clear < n/50 { // the rocket is small
				t.Errorf("%d pixels are opaque and %d transparent, of %d", opaque, clear, n)
			}
		})
	}
}

// The old background must not shine through the rim: a subject with a soft
// edge is composed onto a photograph, cut out again with a mask as small and
// soft as the model's, and laid on grounds of other colours, next to the true
// subject on the same grounds.
func TestRemoveBG_leaves_no_rim_of_the_old_background(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{600, 450}, {1280, 960}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			scene := compose(t, size[0], size[1])
			got, _ := rendered(t, with(t, answers(scene.mask)), job.RemoveBG, asPNG(t, scene.picture))
			rim := scene.rim()

			for name, ground := range map[string][3]byte{"black": {0, 0, 0}, "white": {255, 255, 255}, "green": {0, 200, 0}} {
				want := over(scene.truth, ground)
				halo := difference(want, over(got, ground), rim)
				plain := difference(want, over(scene.plain(), ground), rim)
				t.Logf("%s: error on the rim %.2f, %.2f with the enlarged mask alone", name, halo, plain)
				if halo > 0.7*plain {
					saveDifference(t, t.Name()+name, want, over(got, ground))
					t.Errorf("%s: error on the rim %.2f, more than 0.7 of the enlarged mask's %.2f", name, halo, plain)
				}
			}
		})
	}
}

// What refining the edges gains: without it, the enlarged mask is the matte and
// the old background shows through it.
func TestRemoveBG_with_plain_edges_is_the_enlarged_mask(t *testing.T) {
	t.Parallel()
	scene := compose(t, 600, 450)
	in, rim, green := asPNG(t, scene.picture), scene.rim(), [3]byte{0, 200, 0}
	plain, _ := rendered(t, configured(t, render.Config{Engine: answers(scene.mask), PlainEdges: true}), job.RemoveBG, in)
	if mean, largest := distance(t, alphaOf(scene.plain()), alphaOf(plain)); mean > 0.5 || largest > 6 { // what is all but transparent is dropped
		t.Errorf("alpha differs from the enlarged mask's by %.2f on average and %d at most", mean, largest)
	}
	refined, _ := rendered(t, with(t, answers(scene.mask)), job.RemoveBG, in)
	want := over(scene.truth, green)
	before, after := difference(want, over(plain, green), rim), difference(want, over(refined, green), rim)
	t.Logf("error on the rim %.2f, refined %.2f", before, after)
	if after > 0.7*before {
		t.Errorf("error on the rim %.2f, refined still %.2f", before, after)
	}
}

// A division by the largest value of an empty mask once was how cut-outs of
// empty pictures failed in other tools.
func TestRemoveBG_completes_whatever_the_model_sees(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		value float32
		alpha byte
	}{
		"nothing":       {0, 0},
		"everything":    {1, 255},
		"haze below":    {0.3, 0},
		"haze above":    {0.7, 255},
		"exactly half":  {0.5, 0},
		"beyond one":    {7, 255},
		"below nothing": {-7, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := with(t, constant(test.value))
			got, _ := rendered(t, r, job.RemoveBG, photo(t, "cup.png"))
			for i := 3; i < len(got.Pix); i += 4 {
				if got.Pix[i] != test.alpha {
					t.Fatalf("alpha %d at pixel %d, want %d", got.Pix[i], i/4, test.alpha)
				}
			}
		})
	}
}

func TestRemoveBG_retries_when_the_model_gives_no_numbers(t *testing.T) {
	t.Parallel()
	for _, value := range []float64{math.NaN(), math.Inf(1)} {
		_, err := with(t, constant(float32(value))).Render(t.Context(), job.RemoveBG, photo(t, "cup.png"), &bytes.Buffer{}, nil)
		if _, blamed := errors.AsType[*render.Failure](err); err == nil || blamed {
			t.Errorf("%v: got %v, want an error that does not blame the picture", value, err)
		}
	}
}

func TestRemoveBG_takes_any_shape(t *testing.T) {
	t.Parallel()
	r := newRenderer(t)
	for _, size := range [][2]int{{1, 1}, {2, 2}, {1, 300}, {300, 1}, {1, 5000}, {5000, 1}, {3000, 7}} {
		for bands := 1; bands <= 4; bands++ {
			p := newPicture(size[0], size[1], bands, func(x, y int) []byte {
				return []byte{byte(x), byte(y), byte(x + y), byte(x * y)}[:bands]
			})
			got, _ := rendered(t, r, job.RemoveBG, asPNG(t, p))
			if got.Width != size[0] || got.Height != size[1] || got.Bands != 4 {
				t.Errorf("%v with %d bands became %d x %d with %d", size, bands, got.Width, got.Height, got.Bands)
			}
		}
	}
}

func TestRemoveBG_multiplies_the_alpha_of_the_picture(t *testing.T) {
	t.Parallel()
	r := with(t, constant(1)) // the subject is everything
	p := newPicture(64, 64, 4, func(x, y int) []byte { return []byte{200, 100, 50, byte(4 * x)} })
	got, _ := rendered(t, r, job.RemoveBG, asPNG(t, p))
	for i := range 64 * 64 {
		want := p.Pix[4*i : 4*i+4]
		if want[3] == 0 {
			want = make([]byte, 4)
		}
		if diff := cmp.Diff(want, got.Pix[4*i:4*i+4]); diff != "" {
			t.Fatalf("pixel %d: %s", i, diff)
		}
	}
}

func TestRender_blames_the_picture_in_a_sentence(t *testing.T) {
	t.Parallel()
	r := with(t, constant(1))
	whole := photo(t, "rocket.jpg")
	for name, in := range map[string][]byte{"cut off": whole[:len(whole)/2], "text": []byte("no picture at all"), "empty": nil} {
		for _, task := range job.Tasks() {
			_, err := r.Render(t.Context(), task, in, &bytes.Buffer{}, nil)
			failure, ok := errors.AsType[*render.Failure](err)
			if !ok {
				t.Errorf("%s, %s: got %v, want a Failure", task, name, err)
			} else if !strings.HasSuffix(failure.Message, ".") {
				t.Errorf("%s, %s: %q is no sentence", task, name, failure.Message)
			}
		}
	}
}

func TestRender_reports_growing_progress_up_to_100(t *testing.T) {
	t.Parallel()
	r := newRenderer(t)
	for _, task := range job.Tasks() {
		var got []int
		if _, err := r.Render(t.Context(), task, photo(t, "rocket.jpg"), &bytes.Buffer{}, func(p int) { got = append(got, p) }); err != nil {
			t.Fatal(err)
		}
		for i := 1; i < len(got); i++ {
			if got[i] <= got[i-1] {
				t.Errorf("%s: %v does not grow", task, got)
			}
		}
		if len(got) < 3 || got[len(got)-1] != 100 {
			t.Errorf("%s: %v does not end at 100 in at least 3 steps", task, got)
		}
	}
}

func TestRemoveBG_stops_when_cancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var runs atomic.Int32
	r := with(t, fakeEngine(func(ctx context.Context, in, out onnx.Tensor) error {
		runs.Add(1)
		cancel()
		return nil
	}))
	_, err := r.Render(ctx, job.RemoveBG, photo(t, "cup.png"), &bytes.Buffer{}, nil)
	if !errors.Is(err, context.Canceled) || runs.Load() != 1 {
		t.Errorf("got %v after %d runs, want context.Canceled after 1", err, runs.Load())
	}
}

// constant is a model that answers one value everywhere.
func constant(value float32) fakeEngine {
	return func(ctx context.Context, in, out onnx.Tensor) error {
		for i := range out.Data {
			out.Data[i] = value
		}
		return nil
	}
}

// answers is a model that answers with the mask, and for the mirrored picture,
// which is asked for second, with the mirrored mask.
func answers(mask []float32) fakeEngine {
	var runs atomic.Int32
	return func(ctx context.Context, in, out onnx.Tensor) error {
		side := out.Shape[3]
		mirrored := runs.Add(1)%2 == 0
		for i, v := range mask {
			if mirrored {
				i = i - i%side + side - 1 - i%side
			}
			out.Data[i] = v
		}
		return nil
	}
}

// rgba is a pixel of a picture of any bands.
func rgba(p *vips.Picture, i int) [4]byte {
	px := p.Pix[i*p.Bands:][:p.Bands]
	switch p.Bands {
	case 1:
		return [4]byte{px[0], px[0], px[0], 255}
	case 2:
		return [4]byte{px[0], px[0], px[0], px[1]}
	case 3:
		return [4]byte{px[0], px[1], px[2], 255}
	default:
		return [4]byte(px)
	}
}
