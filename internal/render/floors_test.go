package render_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"pictor/internal/job"
	"pictor/internal/vips"
)

// quality is how good an enlargement is: PSNR of luma and of the worse of the
// two chromas in dB, and SSIM of luma.
type quality struct{ luma, ssim, chroma float64 }

// The floors lie a little below what the shipped models reached when they were
// evaluated (internal/models/MODELS.md); a model that falls through one is
// worse than its forerunner. Where the forerunner was below bicubic, as it is
// on aliased pictures, the floor is a promise not to become worse still.
func TestShipped_models_hold_their_floors(t *testing.T) {
	t.Parallel()
	r := newRenderer(t)
	for _, c := range []struct {
		photo string
		x, y  int // of the part that was made small, 256 pixels wide and high
		grey  bool
		floor map[string]quality
	}{
		{"astronaut.jpg", 120, 0, false, map[string]quality{
			"2x.bicubic": {33.48, 0.967, 49.3},
			"2x.jpeg-60": {28.70, 0.888, 38.6},
			"2x.aliased": {25.15, 0.888, 45.2},
			"4x.bicubic": {27.93, 0.903, 44.2},
			"4x.jpeg-60": {24.81, 0.761, 36.1},
			"4x.aliased": {21.52, 0.786, 40.4},
		}},
		{"camera.png", 120, 40, true, map[string]quality{
			"2x.bicubic": {32.50, 0.958, 0},
			"2x.jpeg-60": {28.59, 0.868, 0},
			"2x.aliased": {24.82, 0.872, 0},
			"4x.bicubic": {27.25, 0.878, 0},
			"4x.jpeg-60": {24.70, 0.728, 0},
			"4x.aliased": {22.00, 0.759, 0},
		}},
		{"chelsea.png", 100, 20, false, map[string]quality{
			"2x.bicubic": {32.70, 0.910, 48.0},
			"2x.jpeg-60": {28.93, 0.783, 38.0},
			"2x.aliased": {26.34, 0.759, 43.8},
			"4x.bicubic": {28.56, 0.757, 43.8},
			"4x.jpeg-60": {26.21, 0.621, 35.5},
			"4x.aliased": {23.65, 0.603, 40.3},
		}},
	} {
		truth := part(decoded(t, photo(t, c.photo)), c.x, c.y, 256)
		name := c.photo[:len(c.photo)-4]
		for how, floor := range c.floor {
			t.Run(name+"."+how, func(t *testing.T) {
				t.Parallel()
				task := job.Upscale2x
				if how[0] == '4' {
					task = job.Upscale4x
				}
				small := evalFile(t, "small", name+"."+how+".png")
				got, _ := rendered(t, r, task, small)
				bicubic := measure(t, truth, stretched(decoded(t, small), 256, 256))
				ours := measure(t, truth, got)
				t.Logf("%+.3f, bicubic %+.3f", ours, bicubic)
				if ours.luma < floor.luma || ours.ssim < floor.ssim || !c.grey && ours.chroma < floor.chroma {
					t.Errorf("got %.4f, want at least %.4f", ours, floor)
				}
			})
		}
	}
	for _, c := range []struct {
		photo, mask            string
		iou, wrong, boundaries float64
	}{
		{"astronaut.jpg", "astronaut.png", 0.72, 0.18, 0.37},
		{"chelsea.png", "chelsea.png", 0.88, 0.11, 0.27},
	} {
		t.Run("remove-bg/"+c.photo, func(t *testing.T) {
			t.Parallel()
			mask := decoded(t, evalFile(t, c.mask))
			got, _ := rendered(t, r, job.RemoveBG, photo(t, c.photo))
			iou, wrong, boundaries := compareMasks(mask, alphaOf(got))
			t.Logf("IoU %.3f, mean error %.3f, boundary F %.3f", iou, wrong, boundaries)
			if iou < c.iou || wrong > c.wrong || boundaries < c.boundaries {
				t.Errorf("IoU %.3f, mean error %.3f, boundary F %.3f: want at least %.3f, at most %.3f, at least %.3f",
					iou, wrong, boundaries, c.iou, c.wrong, c.boundaries)
			}
		})
	}
}

func evalFile(t *testing.T, path ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "testdata", "eval"}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// part is a square of the picture.
func part(p *vips.Picture, x, y, side int) *vips.Picture {
	return newPicture(side, side, p.Bands, func(px, py int) []byte {
		i := ((y+py)*p.Width + x + px) * p.Bands
		return p.Pix[i : i+p.Bands]
	})
}

func measure(t *testing.T, want, got *vips.Picture) quality {
	t.Helper()
	q := quality{luma: psnr(t, want, got), ssim: ssim(want, got), chroma: math.Inf(1)}
	if want.Bands < 3 || got.Bands < 3 {
		return q
	}
	for _, channel := range []struct {
		band  int
		scale float64
	}{{2, 1.772}, {0, 1.402}} { // Cb and Cr
		var sum float64
		for i := range want.Width * want.Height {
			d := float64(want.Pix[i*want.Bands+channel.band]) - luma(want, i) -
				(float64(got.Pix[i*got.Bands+channel.band]) - luma(got, i))
			sum += d * d / (channel.scale * channel.scale)
		}
		q.chroma = min(q.chroma, 10*math.Log10(255*255/(sum/float64(want.Width*want.Height))))
	}
	return q
}

// ssim is the structural similarity of luma, over windows of 8 x 8 pixels that
// are 4 pixels apart.
func ssim(want, got *vips.Picture) float64 {
	const window, step, c1, c2 = 8, 4, (0.01 * 255) * (0.01 * 255), (0.03 * 255) * (0.03 * 255)
	var sum, windows float64
	for y := 0; y+window <= want.Height; y += step {
		for x := 0; x+window <= want.Width; x += step {
			var a, b, aa, bb, ab float64
			for dy := range window {
				for dx := range window {
					i := (y+dy)*want.Width + x + dx
					v, w := luma(want, i), luma(got, i)
					a, b, aa, bb, ab = a+v, b+w, aa+v*v, bb+w*w, ab+v*w
				}
			}
			const n = window * window
			a, b = a/n, b/n
			aa, bb, ab = aa/n-a*a, bb/n-b*b, ab/n-a*b
			sum += (2*a*b + c1) * (2*ab + c2) / ((a*a + b*b + c1) * (aa + bb + c2))
			windows++
		}
	}
	return sum / windows
}

// compareMasks holds an alpha to a mask of 0, 255 and 128 for undecided:
// intersection over union at one half, mean absolute error, and the F of
// contours that match within 0.75 % of the diagonal.
func compareMasks(mask, alpha *vips.Picture) (iou, wrong, boundaries float64) {
	w, h := mask.Width, mask.Height
	var shared, either, sum, decided float64
	for i, m := range mask.Pix {
		if m == 128 {
			continue
		}
		own, subject := alpha.Pix[i] > 127, m > 128
		if own && subject {
			shared++
		}
		if own || subject {
			either++
		}
		sum += math.Abs(float64(alpha.Pix[i])-float64(m)) / 255
		decided++
	}
	reach := max(2, int(math.Round(0.0075*math.Hypot(float64(w), float64(h)))))
	own, want := contour(alpha.Pix, w, 127), contour(mask.Pix, w, 127)
	precision, recall := near(own, want, w, reach), near(want, own, w, reach)
	return shared / max(either, 1), sum / decided, 2 * precision * recall / max(precision+recall, 1e-9)
}

// contour lists the pixels above a level that touch one that is not.
func contour(pix []byte, w int, level byte) (found []int) {
	for i, v := range pix {
		x, y := i%w, i/w
		if v <= level || x == 0 || y == 0 || x == w-1 || (y+1)*w >= len(pix) {
			continue
		}
		if pix[i-1] <= level || pix[i+1] <= level || pix[i-w] <= level || pix[i+w] <= level {
			found = append(found, i)
		}
	}
	return found
}

// near is the share of the pixels that have one of the others within reach.
func near(pixels, others []int, w, reach int) float64 {
	marked := map[int]bool{}
	for _, o := range others {
		marked[o] = true
	}
	var hits int
	for _, p := range pixels {
		if anyNear(marked, p, w, reach) {
			hits++
		}
	}
	return float64(hits) / float64(max(len(pixels), 1))
}

func anyNear(marked map[int]bool, p, w, reach int) bool {
	for dy := -reach; dy <= reach; dy++ {
		for dx := -reach; dx <= reach; dx++ {
			if dx*dx+dy*dy <= reach*reach && marked[p+dy*w+dx] {
				return true
			}
		}
	}
	return false
}
