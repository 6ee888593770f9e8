package render_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pictor/internal/job"
	"pictor/internal/models"
	"pictor/internal/vips"
)

// quality is how good an enlargement is: PSNR of luma and of the worse of the
// two chromas in dB, and SSIM of luma.
type quality struct{ luma, ssim, chroma float64 }

// The floors lie a little below what the shipped models reached when they were
// evaluated (internal/models/MODELS.md); a model that falls through one is
// worse than its forerunner.
func TestShipped_models_hold_their_floors(t *testing.T) {
	t.Parallel()
	r := newRenderer(t)
	for _, c := range []struct {
		photo string
		x, y  int // of the part that was made small, 256 pixels wide and high
		grey  bool
		floor map[string]quality // by model and what was done to the small picture
	}{
		{"astronaut.jpg", 120, 0, false, map[string]quality{
			"upscale-2x.bicubic":      {33.37, 0.969, 50.0},
			"upscale-2x.jpeg-60":      {29.22, 0.903, 38.6},
			"upscale-2x.aliased":      {28.12, 0.929, 47.0},
			"upscale-2x-fast.bicubic": {33.21, 0.968, 49.9},
			"upscale-2x-fast.jpeg-60": {29.20, 0.903, 38.6},
			"upscale-2x-fast.aliased": {27.68, 0.925, 47.0},
			"upscale-4x.bicubic":      {27.91, 0.904, 44.6},
			"upscale-4x.jpeg-60":      {25.30, 0.796, 36.1},
			"upscale-4x.aliased":      {24.79, 0.853, 42.9},
			"upscale-4x-fast.bicubic": {27.77, 0.901, 44.5},
			"upscale-4x-fast.jpeg-60": {25.23, 0.789, 36.1},
			"upscale-4x-fast.aliased": {24.43, 0.844, 42.9},
		}},
		{"camera.png", 120, 40, true, map[string]quality{
			"upscale-2x.bicubic":      {32.81, 0.961, 0},
			"upscale-2x.jpeg-60":      {29.26, 0.887, 0},
			"upscale-2x.aliased":      {27.03, 0.910, 0},
			"upscale-2x-fast.bicubic": {32.74, 0.960, 0},
			"upscale-2x-fast.jpeg-60": {29.25, 0.886, 0},
			"upscale-2x-fast.aliased": {26.72, 0.908, 0},
			"upscale-4x.bicubic":      {27.58, 0.884, 0},
			"upscale-4x.jpeg-60":      {25.34, 0.776, 0},
			"upscale-4x.aliased":      {24.32, 0.828, 0},
			"upscale-4x-fast.bicubic": {27.40, 0.879, 0},
			"upscale-4x-fast.jpeg-60": {25.24, 0.768, 0},
			"upscale-4x-fast.aliased": {23.91, 0.821, 0},
		}},
		{"chelsea.png", 100, 20, false, map[string]quality{
			"upscale-2x.bicubic":      {32.67, 0.909, 48.2},
			"upscale-2x.jpeg-60":      {29.16, 0.789, 38.0},
			"upscale-2x.aliased":      {28.39, 0.821, 44.5},
			"upscale-2x-fast.bicubic": {32.55, 0.906, 48.2},
			"upscale-2x-fast.jpeg-60": {29.15, 0.789, 38.0},
			"upscale-2x-fast.aliased": {28.42, 0.823, 44.5},
			"upscale-4x.bicubic":      {28.58, 0.751, 43.7},
			"upscale-4x.jpeg-60":      {26.56, 0.631, 35.6},
			"upscale-4x.aliased":      {26.26, 0.681, 41.6},
			"upscale-4x-fast.bicubic": {28.56, 0.749, 43.7},
			"upscale-4x-fast.jpeg-60": {26.54, 0.631, 35.6},
			"upscale-4x-fast.aliased": {25.80, 0.673, 41.5},
		}},
	} {
		truth := part(decoded(t, photo(t, c.photo)), c.x, c.y, 256)
		name := c.photo[:len(c.photo)-4]
		for row, floor := range c.floor {
			t.Run(name+"/"+row, func(t *testing.T) {
				t.Parallel()
				model, how, _ := strings.Cut(row, ".")
				i := slices.IndexFunc(models.Shipped(), func(d models.Description) bool { return d.Name == model })
				d := models.Shipped()[i]
				small := evalFile(t, "small", fmt.Sprintf("%s.%dx.%s.png", name, d.Scale, how))
				got, _ := rendered(t, withModel(t, d), d.Task, small)
				bicubic := measure(t, truth, stretched(decoded(t, small), 256, 256))
				ours := measure(t, truth, got)
				t.Logf("%.3f, bicubic %.3f", ours, bicubic)
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
		{"astronaut.jpg", "astronaut.png", 0.93, 0.04, 0.74},
		{"chelsea.png", "chelsea.png", 0.97, 0.02, 0.67},
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
