package render

import "pictor/internal/vips"

// cutout is a picture whose background is to be removed, and what is known
// about its subject.
type cutout struct {
	picture *vips.Picture
	under   byte // grey that the model saw in place of transparency
	matte   matte
	colours *colours // nil: soft pixels keep their colour, too
}

// paintRows writes rows from..to-1 of the result as RGBA. Opaque pixels keep
// their colour exactly, soft ones get the colour of what is in front, and
// transparent ones carry none.
func (c *cutout) paintRows(from, to int, rgba []byte) {
	p := c.picture
	painter := c.matte.painter(p.Width, p.Height)
	front := newColourPainter(c.colours, p.Width, p.Height)
	alpha, flat := make([]byte, p.Width), make([]byte, 3*p.Width)
	for y := from; y < to; y++ {
		rgb := opaqueRow(p, y, c.under, flat)
		painter.row(y, rgb, alpha)
		front.start(y)
		own := p.Pix[y*p.Width*p.Bands:]
		out := rgba[(y-from)*4*p.Width:][:4*p.Width]
		switch p.Bands {
		case 1, 3: // rgb is the picture itself
			for x, a := range alpha {
				px := out[4*x : 4*x+4]
				switch a {
				case 0:
					px[0], px[1], px[2], px[3] = 0, 0, 0, 0
				case 255:
					px[0], px[1], px[2], px[3] = rgb[3*x], rgb[3*x+1], rgb[3*x+2], 255
				default:
					front.paint(x, rgb[3*x:3*x+3], a, px)
				}
			}
		case 2:
			for x, a := range alpha {
				g := own[2*x]
				c.paintOver(x, [3]byte{g, g, g}, a, own[2*x+1], front, out[4*x:4*x+4])
			}
		default:
			for x, a := range alpha {
				c.paintOver(x, [3]byte(own[4*x:4*x+3]), a, own[4*x+3], front, out[4*x:4*x+4])
			}
		}
	}
}

// paintOver paints a pixel that has an alpha of its own: the two are
// multiplied. Where the picture was soft already, its colour is that of the
// front already.
func (c *cutout) paintOver(x int, rgb [3]byte, alpha, own byte, front *colourPainter, px []byte) {
	switch a := byte((int(alpha)*int(own) + 127) / 255); {
	case a == 0:
		px[0], px[1], px[2], px[3] = 0, 0, 0, 0
	case own == 255 && alpha < 255:
		front.paint(x, rgb[:], alpha, px)
	default:
		px[0], px[1], px[2], px[3] = rgb[0], rgb[1], rgb[2], a
	}
}

// colourPainter finds the colour in front for pixels of one row at a time. A nil
// one takes the picture's own for it.
type colourPainter struct {
	colours colours
	height  int
	columns []lerp

	y           int
	blended     bool // front and back are those of row y
	front, back [3][]float32
}

func newColourPainter(c *colours, width, height int) *colourPainter {
	if c == nil {
		return nil
	}
	p := &colourPainter{colours: *c, height: height, columns: lerps(c.front[0].w, width)}
	for i := range p.front {
		p.front[i] = make([]float32, c.front[i].w+1)
		p.back[i] = make([]float32, c.back[i].w+1)
	}
	return p
}

func (p *colourPainter) start(y int) {
	if p != nil {
		p.y, p.blended = y, false
	}
}

// paint writes the RGBA pixel of column x, which shows rgb.
func (p *colourPainter) paint(x int, rgb []byte, alpha byte, px []byte) {
	if p == nil {
		px[0], px[1], px[2], px[3] = rgb[0], rgb[1], rgb[2], alpha
		return
	}
	if !p.blended {
		at := lerpAt(p.colours.front[0].h, p.height, p.y)
		for i := range p.front {
			blend(p.front[i], p.colours.front[i], at)
			blend(p.back[i], p.colours.back[i], at)
		}
		p.blended = true
	}
	at, a := p.columns[x], float32(alpha)/255
	for i := range p.front {
		c := frontColour(float32(rgb[i])/255, a, between(p.front[i], at), between(p.back[i], at))
		px[i] = byte(c*255 + 0.5)
	}
	px[3] = alpha
}
