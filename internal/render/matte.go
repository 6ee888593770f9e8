package render

import "math"

// matte is how visible the subject is at every place, for any size of the
// picture: the zones at the size they were found, the edge model at its own.
type matte struct {
	zones []zone
	w, h  int // of zones
	edges edgeModel
}

// mattePainter paints rows of a matte at one size. It has buffers of its own:
// one for each goroutine.
type mattePainter struct {
	m                       matte
	height                  int
	zoneColumns, fitColumns []lerp
	first                   []int // for each column of zones, the first column of the picture at or right of its centre

	low, high           []float32 // of the current row, alpha's bounds per column of zones
	red, green, blue, b []float32 // of the current row, the edge model per column of its own
}

func (m matte) painter(width, height int) *mattePainter {
	p := &mattePainter{
		m:           m,
		height:      height,
		zoneColumns: lerps(m.w, width),
		fitColumns:  lerps(m.edges.bias.w, width),
		first:       make([]int, m.w+1),
		low:         make([]float32, m.w+1),
		high:        make([]float32, m.w+1),
	}
	for _, row := range []*[]float32{&p.red, &p.green, &p.blue, &p.b} {
		*row = make([]float32, m.edges.bias.w+1)
	}
	x := 0
	for i := range p.first {
		for x < width && p.zoneColumns[x].i < i {
			x++
		}
		p.first[i] = x
	}
	return p
}

// row paints row y: alpha is 0 or 255 away from the contour, and in the band
// what the edge model makes of the row's colours.
func (p *mattePainter) row(y int, rgb, alpha []byte) {
	p.bounds(y)
	fitted := false
	for i := range p.m.w {
		from, to := p.first[i], p.first[i+1]
		switch {
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

// bounds blends the zones of the two nearest rows, so that the band's limits
// are no stairs in a picture larger than the zones.
func (p *mattePainter) bounds(y int) {
	at := lerpAt(p.m.h, p.height, y)
	above := p.m.zones[at.i*p.m.w : (at.i+1)*p.m.w]
	below := above
	if at.t > 0 {
		below = p.m.zones[(at.i+1)*p.m.w : (at.i+2)*p.m.w]
	}
	lows, highs := [3]float32{edge: 0, foreground: 1}, [3]float32{edge: 1, foreground: 1}
	for x, z := range above {
		if below[x] == z {
			p.low[x], p.high[x] = lows[z], highs[z]
		} else {
			p.low[x] = (1-at.t)*lows[z] + at.t*lows[below[x]]
			p.high[x] = (1-at.t)*highs[z] + at.t*highs[below[x]]
		}
	}
	p.low[p.m.w], p.high[p.m.w] = p.low[p.m.w-1], p.high[p.m.w-1]
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
		z := p.zoneColumns[x]
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

// finite says that none of the values is NaN or infinite.
func finite(values []float32) bool {
	for _, v := range values {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return false
		}
	}
	return true
}
