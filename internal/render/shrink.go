package render

import (
	"sync"

	"pictor/internal/vips"
)

// shrink area-shrinks a picture to RGB of w x h pixels, neither larger than
// the picture's. Every pixel of the original counts with the area it covers,
// as in the training of the mask model. What is transparent shows `under`.
func shrink(p *vips.Picture, w, h int, under byte, threads int) *vips.Picture {
	out := &vips.Picture{Width: w, Height: h, Bands: 3, Pix: make([]byte, 3*w*h)}
	spans := spans(p.Width, w)
	rows := taps(p.Height, h)
	parallel(threads, h, func(from, to int) {
		rgb := make([]byte, 3*p.Width)
		acc := make([]float32, 3*w)
		for y := from; y < to; y++ {
			clear(acc)
			for k, weight := range rows[y].weights {
				line := opaqueRow(p, rows[y].first+k, under, rgb)
				addSpans(acc, line, spans, weight)
			}
			for i, v := range acc {
				out.Pix[3*w*y+i] = byte(v + 0.5)
			}
		}
	})
	return out
}

// span is areaTap in whole numbers, of 1/256 pixel: the first pixel's weight,
// how many whole pixels follow, and the weight of the one after them.
type span struct {
	first, whole int
	head, tail   int
	scale        float32 // 1 / sum of weights
}

func spans(n, m int) []span {
	s := make([]span, m)
	for i := range s {
		from, to := i*n*256/m, (i+1)*n*256/m
		first, last := from/256, to/256
		if first == last { // only when nothing shrinks
			s[i] = span{first: first, head: to - from}
		} else {
			s[i] = span{first: first, head: 256 - from%256, whole: last - first - 1, tail: to % 256}
		}
		s[i].scale = 1 / float32(s[i].head+256*s[i].whole+s[i].tail)
	}
	return s
}

// addSpans adds a row of RGB, shrunk to the spans and times weight, to acc.
func addSpans(acc []float32, rgb []byte, spans []span, weight float32) {
	for i, s := range spans {
		px := rgb[3*s.first:]
		r, g, b := s.head*int(px[0]), s.head*int(px[1]), s.head*int(px[2])
		px = px[3:]
		if s.whole > 0 {
			var wr, wg, wb int
			whole := px[:3*s.whole]
			for len(whole) >= 3 {
				wr += int(whole[0])
				wg += int(whole[1])
				wb += int(whole[2])
				whole = whole[3:]
			}
			r, g, b = r+256*wr, g+256*wg, b+256*wb
			px = px[3*s.whole:]
		}
		if s.tail > 0 {
			r, g, b = r+s.tail*int(px[0]), g+s.tail*int(px[1]), b+s.tail*int(px[2])
		}
		f := weight * s.scale
		acc[3*i] += f * float32(r)
		acc[3*i+1] += f * float32(g)
		acc[3*i+2] += f * float32(b)
	}
}

// opaqueRow is row y as RGB, transparent parts over the grey `under`. It is
// the picture's own memory when that is RGB, else buf.
func opaqueRow(p *vips.Picture, y int, under byte, buf []byte) []byte {
	row := p.Pix[y*p.Width*p.Bands : (y+1)*p.Width*p.Bands]
	over := func(c, alpha byte) byte {
		return byte((int(c)*int(alpha) + int(under)*(255-int(alpha)) + 127) / 255)
	}
	switch p.Bands {
	case 1:
		for x, g := range row {
			buf[3*x], buf[3*x+1], buf[3*x+2] = g, g, g
		}
	case 2:
		for x := range p.Width {
			g := over(row[2*x], row[2*x+1])
			buf[3*x], buf[3*x+1], buf[3*x+2] = g, g, g
		}
	case 3:
		return row
	default:
		for x := range p.Width {
			px := row[4*x : 4*x+4]
			if a := px[3]; a == 255 {
				copy(buf[3*x:3*x+3], px)
			} else {
				buf[3*x], buf[3*x+1], buf[3*x+2] = over(px[0], a), over(px[1], a), over(px[2], a)
			}
		}
	}
	return buf
}

// parallel splits 0..n among up to `threads` goroutines and waits for them.
func parallel(threads, n int, work func(from, to int)) {
	threads = max(1, min(threads, n))
	var wg sync.WaitGroup
	for i := 1; i < threads; i++ {
		wg.Go(func() { work(i*n/threads, (i+1)*n/threads) })
	}
	work(0, n/threads)
	wg.Wait()
}
