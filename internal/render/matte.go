package render

import "math"

// matte is how visible the subject is at every place, for any size of the
// picture. Its parts are planes of sizes of their own.
type matte struct {
	low, high plane // what alpha is at least, and at most
	edges     edgeModel
}

// limits bounds alpha by the distance from the contour: 0 or 1 beyond `width`
// pixels, free within half of that, and gliding in between. A sharp limit would
// show as an outline of its own wherever the edge model is unsure.
func limits(inside []bool, w int, width float64) (low, high plane) {
	low, high = newPlane(w, len(inside)/w), newPlane(w, len(inside)/w)
	for i, z := range band(inside, w, 0.75*width) {
		if z == foreground {
			low.v[i] = 1
		}
		if z != background {
			high.v[i] = 1
		}
	}
	glide := max(1, int(math.Round(0.25*width)))
	return low.blur(glide), high.blur(glide)
}

// mattePainter paints rows of a matte at one size. It has buffers of its own:
// one for each goroutine.
type mattePainter struct {
	m                        matte
	height                   int
	limitColumns, fitColumns []lerp
	first                    []int     // for each column of the limits, the first column of the picture at or right of its centre
	low, high                []float32 // of the current row
	red, green, blue, b      []float32 // of the current row, the edge model
}

func (m matte) painter(width, height int) *mattePainter {
	p := &mattePainter{
		m:            m,
		height:       height,
		limitColumns: lerps(m.low.w, width),
		fitColumns:   lerps(m.edges.bias.w, width),
		first:        make([]int, m.low.w+1),
		low:          make([]float32, m.low.w+1),
		high:         make([]float32, m.low.w+1),
	}
	for _, row := range []*[]float32{&p.red, &p.green, &p.blue, &p.b} {
		*row = make([]float32, m.edges.bias.w+1)
	}
	x := 0
	for i := range p.first {
		for x < width && p.limitColumns[x].i < i {
			x++
		}
		p.first[i] = x
	}
	return p
}

// row paints row y: alpha is 0 or 255 away from the contour, and near it what
// the edge model makes of the row's colours.
func (p *mattePainter) row(y int, rgb, alpha []byte) {
	at := lerpAt(p.m.low.h, p.height, y)
	blend(p.low, p.m.low, at)
	blend(p.high, p.m.high, at)
	fitted := false
	for i := range p.m.low.w {
		from, to := p.first[i], p.first[i+1]
		switch {
		case from == to:
		case p.high[i] == 0 && p.high[i+1] == 0:
			clear(alpha[from:to])
		case p.low[i] == 1 && p.low[i+1] == 1:
			fill(alpha[from:to], 255)
		default:
			if !fitted {
				p.fit(y)
				fitted = true
			}
			p.soft(from, to, rgb, alpha)
		}
	}
}

// fit interpolates the edge model for row y.
func (p *mattePainter) fit(y int) {
	at := lerpAt(p.m.edges.bias.h, p.height, y)
	blend(p.red, p.m.edges.r, at)
	blend(p.green, p.m.edges.g, at)
	blend(p.blue, p.m.edges.b, at)
	blend(p.b, p.m.edges.bias, at)
}

// blend interpolates between two rows of a plane. The last value is repeated,
// as the right neighbour of the last column.
func blend(out []float32, p plane, at lerp) {
	above := p.row(at.i)
	if at.t == 0 {
		copy(out, above)
	} else {
		below := p.row(at.i + 1)
		for x, v := range above {
			out[x] = v + at.t*(below[x]-v)
		}
	}
	out[p.w] = out[p.w-1]
}

func (p *mattePainter) soft(from, to int, rgb, alpha []byte) {
	for x := from; x < to; x++ {
		f := p.fitColumns[x]
		px := rgb[3*x : 3*x+3]
		fitted := between(p.red, f)*float32(px[0]) + between(p.green, f)*float32(px[1]) + between(p.blue, f)*float32(px[2])
		a := stretch(fitted/255 + between(p.b, f))
		z := p.limitColumns[x]
		a = min(max(a, between(p.low, z)), between(p.high, z))
		alpha[x] = byte(a*255 + 0.5)
	}
}

func between(row []float32, at lerp) float32 {
	return row[at.i] + at.t*(row[at.i+1]-row[at.i])
}

func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}
