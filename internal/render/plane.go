package render

import "math"

// plane is one channel of a picture: rows of float32 values.
type plane struct {
	w, h int
	v    []float32
}

func newPlane(w, h int) plane { return plane{w, h, make([]float32, w*h)} }

func (p plane) row(y int) []float32 { return p.v[y*p.w : (y+1)*p.w] }

// tap is where one pixel of a resized row or column comes from: a run of
// source pixels from first on, each with its weight. The weights sum to 1.
type tap struct {
	first   int
	weights []float32
}

// taps resizes one axis from n to m pixels: by the area that a new pixel
// covers when the axis shrinks, linearly between pixel centres when it grows.
func taps(n, m int) []tap {
	t := make([]tap, m)
	for i := range t {
		if m < n {
			t[i] = areaTap(n, m, i)
		} else {
			l := lerpAt(n, m, i)
			t[i] = tap{l.i, []float32{1 - l.t, l.t}}
			if l.t == 0 {
				t[i].weights = t[i].weights[:1]
			}
		}
	}
	return t
}

func areaTap(n, m, i int) tap {
	ratio := float64(n) / float64(m)
	from, to := float64(i)*ratio, min(float64(i+1)*ratio, float64(n))
	first := int(from)
	t := tap{first: first}
	for x := first; x < n && float64(x) < to; x++ {
		covered := min(to, float64(x+1)) - max(from, float64(x))
		t.weights = append(t.weights, float32(covered/ratio))
	}
	return t
}

// lerp is a position between the centres of the pixels i and i+1. Where t is
// 0, the pixel i+1 need not exist.
type lerp struct {
	i int
	t float32
}

// lerpAt is where pixel i of a row of m pixels lies in one of n, which spans
// the same length.
func lerpAt(n, m, i int) lerp {
	at := (float64(i)+0.5)*float64(n)/float64(m) - 0.5
	at = min(max(at, 0), float64(n-1))
	whole := math.Floor(at)
	return lerp{int(whole), float32(at - whole)}
}

func lerps(n, m int) []lerp {
	l := make([]lerp, m)
	for i := range l {
		l[i] = lerpAt(n, m, i)
	}
	return l
}

// resize gives the plane another size.
func (p plane) resize(w, h int) plane {
	if p.w == w && p.h == h {
		return p
	}
	wide := newPlane(w, p.h)
	columns := taps(p.w, w)
	for y := range p.h {
		in, out := p.row(y), wide.row(y)
		for x, t := range columns {
			var sum float32
			for k, weight := range t.weights {
				sum += weight * in[t.first+k]
			}
			out[x] = sum
		}
	}
	if p.h == h {
		return wide
	}
	out := newPlane(w, h)
	for y, t := range taps(p.h, h) {
		row := out.row(y)
		for k, weight := range t.weights {
			for x, v := range wide.row(t.first + k) {
				row[x] += weight * v
			}
		}
	}
	return out
}

// blur is the mean over a square of 2r+1 pixels; beyond its edges the plane is
// reflected, the edge pixel included. Running sums are float64: in float32 they
// would drift by more than the variances that the guided filter takes apart.
func (p plane) blur(r int) plane {
	return p.blurRows(r).blurColumns(r)
}

func (p plane) blurRows(r int) plane {
	out := newPlane(p.w, p.h)
	padded := make([]float32, p.w+2*r)
	scale := 1 / float64(2*r+1)
	for y := range p.h {
		in := p.row(y)
		copy(padded[r:], in)
		for k := range r {
			padded[r-1-k] = in[reflect(-1-k, p.w)]
			padded[r+p.w+k] = in[reflect(p.w+k, p.w)]
		}
		var sum float64
		for _, v := range padded[:2*r] {
			sum += float64(v)
		}
		row := out.row(y)
		enter, leave := padded[2*r:][:len(row)], padded[:len(row)]
		for x := range row {
			sum += float64(enter[x])
			row[x] = float32(sum * scale)
			sum -= float64(leave[x])
		}
	}
	return out
}

func (p plane) blurColumns(r int) plane {
	out := newPlane(p.w, p.h)
	sums := make([]float64, p.w)
	for k := -r; k < r; k++ {
		for x, v := range p.row(reflect(k, p.h)) {
			sums[x] += float64(v)
		}
	}
	scale := 1 / float64(2*r+1)
	for y := range p.h {
		row := out.row(y)
		enter, leave := p.row(reflect(y+r, p.h))[:len(row)], p.row(reflect(y-r, p.h))[:len(row)]
		sums := sums[:len(row)]
		for x := range row {
			sum := sums[x] + float64(enter[x])
			row[x] = float32(sum * scale)
			sums[x] = sum - float64(leave[x])
		}
	}
	return out
}

// reflect brings an index into 0..n-1 by mirroring at both edges.
func reflect(i, n int) int {
	i %= 2 * n
	if i < 0 {
		i += 2 * n
	}
	if i >= n {
		i = 2*n - 1 - i
	}
	return i
}

func clamp01(v float32) float32 { return min(max(v, 0), 1) }
