package render

import (
	"math"

	"pictor/internal/vips"
)

// colours is an estimate of what lies in front and behind, everywhere in the
// picture: on a soft edge a pixel shows a mixture of the two.
type colours struct{ front, back [3]plane }

// Radii of the two passes of blur fusion, as shares of the longest side: a
// coarse one that finds the colours at all, a fine one that keeps detail.
const (
	coarseRadius = 0.03
	fineRadius   = 0.006
)

// separate estimates the colours in front of and behind soft edges by blur
// fusion (Forte 2021): means of the surely visible and the surely hidden,
// weighted by alpha, refined once with a smaller radius.
func separate(rgb *vips.Picture, alpha plane) colours {
	var image [3]plane
	for c := range image {
		image[c] = channel(rgb, c)
	}
	coarse := blurFusion(image, image, alpha, coarseRadius)
	var front [3]plane
	for c := range front {
		front[c] = newPlane(alpha.w, alpha.h)
		for i, a := range alpha.v {
			front[c].v[i] = frontColour(image[c].v[i], a, coarse.front[c].v[i], coarse.back[c].v[i])
		}
	}
	return blurFusion(front, coarse.back, alpha, fineRadius)
}

func blurFusion(front, back [3]plane, alpha plane, share float64) colours {
	radius := max(1, int(math.Round(share*float64(max(alpha.w, alpha.h)))))
	visible := alpha.blur(radius)
	var out colours
	for c := range front {
		f, b := newPlane(alpha.w, alpha.h), newPlane(alpha.w, alpha.h)
		for i, a := range alpha.v {
			f.v[i] = front[c].v[i] * a
			b.v[i] = back[c].v[i] * (1 - a)
		}
		f, b = f.blur(radius), b.blur(radius)
		for i, a := range visible.v {
			f.v[i] /= a + 1e-5
			b.v[i] /= 1 - a + 1e-5
		}
		out.front[c], out.back[c] = f, b
	}
	return out
}

// frontColour is the visible colour of a pixel that shows `image`: the local
// means, moved by what their mixture leaves unexplained.
func frontColour(image, alpha, front, back float32) float32 {
	return clamp01(front + alpha*(image-alpha*front-(1-alpha)*back))
}
