package render_test

import (
	"image"
	"math"
	"testing"

	"golang.org/x/image/draw"

	"pictor/internal/render"
	"pictor/internal/vips"
)

// scene is a picture whose true subject is known.
type scene struct {
	picture *vips.Picture // RGB
	truth   *vips.Picture // RGBA: the subject alone
	mask    []float32     // what a model of 256 x 256 would answer
}

// compose lays a subject with the fur of a cat, an uneven outline and a soft
// edge of a few pixels on a photograph of a cup.
func compose(t testing.TB, w, h int) scene {
	t.Helper()
	front, back := stretched(decoded(t, photo(t, "chelsea.png")), w, h), stretched(decoded(t, photo(t, "coffee.webp")), w, h)
	soft := 3 * float64(w) / 600
	alpha := make([]float32, w*h)
	truth := newPicture(w, h, 4, func(x, y int) []byte {
		dx, dy := float64(x)-0.5*float64(w), float64(y)-0.52*float64(h)
		angle := math.Atan2(dy, dx)
		radius := 0.3 * float64(h) * (1 + 0.15*math.Sin(3*angle) + 0.04*math.Sin(17*angle))
		a := min(max((radius-math.Hypot(dx, dy))/soft+0.5, 0), 1)
		alpha[y*w+x] = float32(a)
		px := front.Pix[3*(y*w+x):]
		return []byte{px[0], px[1], px[2], byte(math.Round(255 * a))}
	})
	picture := newPicture(w, h, 3, func(x, y int) []byte {
		i := y*w + x
		out := make([]byte, 3)
		for c := range out {
			a := float64(alpha[i])
			out[c] = byte(math.Round(a*float64(truth.Pix[4*i+c]) + (1-a)*float64(back.Pix[3*i+c])))
		}
		return out
	})
	small := render.Blur(render.Resize(alpha, w, 256, 256), 256, 2)
	return scene{picture, truth, small}
}

// rim marks the pixels near the true edge.
func (s scene) rim() []bool {
	w, h := s.truth.Width, s.truth.Height
	inside := make([]bool, w*h)
	for i := range inside {
		inside[i] = s.truth.Pix[4*i+3] > 127
	}
	rim := make([]bool, w*h)
	for i, z := range render.Band(inside, w, 0.01*float64(w)) {
		rim[i] = z == render.Edge
	}
	return rim
}

// plain is the subject cut out with the enlarged mask and its own colours.
func (s scene) plain() *vips.Picture {
	w, h := s.picture.Width, s.picture.Height
	alpha := render.Resize(s.mask, 256, w, h)
	return newPicture(w, h, 4, func(x, y int) []byte {
		px := s.picture.Pix[3*(y*w+x):]
		return []byte{px[0], px[1], px[2], byte(255*alpha[y*w+x] + 0.5)}
	})
}

// difference is the mean difference of the marked pixels.
func difference(want, got *vips.Picture, marked []bool) float64 {
	var sum, n float64
	for i, ok := range marked {
		if !ok {
			continue
		}
		for c := range want.Bands {
			sum += math.Abs(float64(want.Pix[i*want.Bands+c]) - float64(got.Pix[i*want.Bands+c]))
			n++
		}
	}
	return sum / n
}

// stretched resizes a photograph without keeping its aspect.
func stretched(p *vips.Picture, w, h int) *vips.Picture {
	out := image.NewRGBA(image.Rect(0, 0, w, h))
	in := toImage(p)
	draw.CatmullRom.Scale(out, out.Rect, in, in.Bounds(), draw.Src, nil)
	bands := 3
	if p.Bands < 3 {
		bands = 1
	}
	return fromImage(out, bands)
}
