package render

import "pictor/internal/vips"

// bleed gives fully transparent pixels the colour of the visible ones nearby:
// what a file stores there is often black, and would darken the edge when the
// picture is enlarged.
//
// Colours are averaged, weighted by alpha, into ever smaller pictures, then
// filled in from the smaller to the larger ones.
func bleed(p *vips.Picture) {
	if !hasAlpha(p) || !hasHoles(p) {
		return
	}
	levels := []*vips.Picture{p}
	for last := p; last.Width > 1 || last.Height > 1; {
		last = halve(last)
		levels = append(levels, last)
		if !hasHoles(last) {
			break
		}
	}
	for i := len(levels) - 2; i >= 0; i-- {
		fillHoles(levels[i], levels[i+1])
	}
}

func hasHoles(p *vips.Picture) bool {
	for i := p.Bands - 1; i < len(p.Pix); i += p.Bands {
		if p.Pix[i] == 0 {
			return true
		}
	}
	return false
}

// halve averages blocks of 2 x 2 pixels. The alpha of a block is the sum of its
// pixels', up to 255: a block with any visible pixel is visible.
func halve(p *vips.Picture) *vips.Picture {
	out := &vips.Picture{Width: ceil(p.Width, 2), Height: ceil(p.Height, 2), Bands: p.Bands}
	out.Pix = make([]byte, out.Width*out.Height*out.Bands)
	for y := range out.Height {
		for x := range out.Width {
			var sum [3]int
			weight := 0
			for by := 2 * y; by < min(2*y+2, p.Height); by++ {
				for bx := 2 * x; bx < min(2*x+2, p.Width); bx++ {
					px := p.Pix[(by*p.Width+bx)*p.Bands:][:p.Bands]
					alpha := int(px[p.Bands-1])
					weight += alpha
					for c, v := range px[:p.Bands-1] {
						sum[c] += int(v) * alpha
					}
				}
			}
			if weight == 0 {
				continue
			}
			px := out.Pix[(y*out.Width+x)*out.Bands:][:out.Bands]
			for c := range px[:out.Bands-1] {
				px[c] = byte((sum[c] + weight/2) / weight)
			}
			px[out.Bands-1] = byte(min(weight, 255))
		}
	}
	return out
}

// fillHoles gives the transparent pixels the colour of their block.
func fillHoles(p, halved *vips.Picture) {
	for y := range p.Height {
		for x := range p.Width {
			px := p.Pix[(y*p.Width+x)*p.Bands:][:p.Bands]
			if px[p.Bands-1] == 0 {
				copy(px[:p.Bands-1], halved.Pix[(y/2*halved.Width+x/2)*p.Bands:])
			}
		}
	}
}
