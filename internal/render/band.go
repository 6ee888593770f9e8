package render

import "math"

// zone says what a pixel is by its distance from the contour of the subject.
type zone byte

const (
	background zone = iota
	edge            // within the band round the contour: alpha is estimated
	foreground
)

// band sorts the pixels into zones. The band reaches `width` pixels (Euclidean,
// between pixel centres) to both sides of the contour.
//
// The nearest pixel of the other side always lies on the contour, so the band
// is what discs round the contour's pixels cover: a few thousand discs instead
// of a distance transform of the whole picture.
func band(inside []bool, w int, width float64) []zone {
	h := len(inside) / w
	nearIn, nearOut := discs(inside, w, true, width), discs(inside, w, false, width)
	zones := make([]zone, w*h)
	for i, in := range inside {
		switch {
		case in && nearOut[i], !in && nearIn[i]:
			zones[i] = edge
		case in:
			zones[i] = foreground
		}
	}
	return zones
}

// discs marks what lies within `width` of a contour pixel on the given side.
func discs(inside []bool, w int, side bool, width float64) []bool {
	h := len(inside) / w
	r := int(width)
	half := make([]int, 2*r+1) // half the disc's extent in row dy-r
	for k := range half {
		dy := float64(k - r)
		half[k] = int(math.Sqrt(width*width - dy*dy))
	}
	// starts counts, per row, the discs that begin at a column minus those that
	// ended before it; one column more than the row has takes the last ends.
	starts := make([]int32, h*(w+1))
	for i, in := range inside {
		if in != side {
			continue
		}
		x, y := i%w, i/w
		if (x == 0 || inside[i-1] == side) && (x == w-1 || inside[i+1] == side) &&
			(y == 0 || inside[i-w] == side) && (y == h-1 || inside[i+w] == side) {
			continue // no contour pixel
		}
		for k, dx := range half {
			if row := y + k - r; row >= 0 && row < h {
				starts[row*(w+1)+max(x-dx, 0)]++
				starts[row*(w+1)+min(x+dx+1, w)]--
			}
		}
	}
	near := make([]bool, w*h)
	for y := range h {
		var open int32
		for x := range w {
			open += starts[y*(w+1)+x]
			near[y*w+x] = open > 0
		}
	}
	return near
}

// snap takes the haze away: alpha is stretched in the band, and 0 or 1 outside.
func snap(p plane, zones []zone) {
	for i, z := range zones {
		switch z {
		case background:
			p.v[i] = 0
		case foreground:
			p.v[i] = 1
		default:
			p.v[i] = clamp01((p.v[i] - 0.1) / 0.8)
		}
	}
}
