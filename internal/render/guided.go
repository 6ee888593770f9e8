package render

import (
	"math"

	"pictor/internal/vips"
)

const (
	guidedSide = 256  // longest side that the filter works at: finer was slower and no better
	guidedEps  = 1e-4 // variance of colour (0..1) below which an area counts as flat
)

// edgeModel says, for every place of the picture, how alpha near the contour
// follows from the colour: alpha = r*R + g*G + b*B + bias, with colour 0..1.
type edgeModel struct{ r, g, b, bias plane }

// fitEdges fits the edge model by a colour guided filter: in each small window,
// the linear function of the colour that is closest to alpha, averaged over the
// windows that a place lies in. So an edge of alpha moves onto the edge of
// colour beside it. width is the half width of the band, in pixels of rgb.
func fitEdges(rgb *vips.Picture, alpha plane, width float64) edgeModel {
	s := max(1, math.Round(float64(max(rgb.Width, rgb.Height))/guidedSide))
	w, h := max(1, int(float64(rgb.Width)/s)), max(1, int(float64(rgb.Height)/s))
	radius := max(1, int(math.Round(width/s)))

	small := shrink(rgb, w, h, 0, 1)
	a := alpha.resize(w, h)
	var colour, mean [3]plane
	for c := range colour {
		colour[c] = channel(small, c)
		mean[c] = colour[c].blur(radius)
	}
	meanA := a.blur(radius)

	covariance := func(x, y, meanX, meanY plane) plane {
		product := newPlane(w, h)
		for i := range product.v {
			product.v[i] = x.v[i] * y.v[i]
		}
		product = product.blur(radius)
		for i := range product.v {
			product.v[i] -= meanX.v[i] * meanY.v[i]
		}
		return product
	}
	var withAlpha [3]plane
	for c := range colour {
		withAlpha[c] = covariance(colour[c], a, mean[c], meanA)
	}
	rr, rg, rb := covariance(colour[0], colour[0], mean[0], mean[0]), covariance(colour[0], colour[1], mean[0], mean[1]), covariance(colour[0], colour[2], mean[0], mean[2])
	gg, gb, bb := covariance(colour[1], colour[1], mean[1], mean[1]), covariance(colour[1], colour[2], mean[1], mean[2]), covariance(colour[2], colour[2], mean[2], mean[2])

	m := edgeModel{newPlane(w, h), newPlane(w, h), newPlane(w, h), newPlane(w, h)}
	for i := range m.bias.v {
		r, g, b := solve(
			float64(rr.v[i])+guidedEps, float64(rg.v[i]), float64(rb.v[i]),
			float64(gg.v[i])+guidedEps, float64(gb.v[i]), float64(bb.v[i])+guidedEps,
			float64(withAlpha[0].v[i]), float64(withAlpha[1].v[i]), float64(withAlpha[2].v[i]))
		m.r.v[i], m.g.v[i], m.b.v[i] = r, g, b
		m.bias.v[i] = meanA.v[i] - r*mean[0].v[i] - g*mean[1].v[i] - b*mean[2].v[i]
	}
	return edgeModel{m.r.blur(radius), m.g.blur(radius), m.b.blur(radius), m.bias.blur(radius)}
}

// solve is x of S x = v for the symmetric matrix S of the covariances, whose
// eps on the diagonal keeps its determinant away from 0.
func solve(rr, rg, rb, gg, gb, bb, v0, v1, v2 float64) (x0, x1, x2 float32) {
	c0, c1, c2 := gg*bb-gb*gb, gb*rb-rg*bb, rg*gb-gg*rb
	d := rr*c0 + rg*c1 + rb*c2
	if !(d > 0) { // rounding of a window without any variance
		return 0, 0, 0
	}
	x0 = float32((c0*v0 + c1*v1 + c2*v2) / d)
	x1 = float32((c1*v0 + (rr*bb-rb*rb)*v1 + (rg*rb-rr*gb)*v2) / d)
	x2 = float32((c2*v0 + (rg*rb-rr*gb)*v1 + (rr*gg-rg*rg)*v2) / d)
	return x0, x1, x2
}

// channel is one band of a picture, 0..1.
func channel(p *vips.Picture, c int) plane {
	out := newPlane(p.Width, p.Height)
	for i := range out.v {
		out.v[i] = float32(p.Pix[p.Bands*i+c]) / 255
	}
	return out
}

// stretch ends the haze that a fitted alpha leaves at 0 and 1.
func stretch(alpha float32) float32 { return clamp01((alpha - 0.05) / 0.9) }
