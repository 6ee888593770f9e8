package render

import (
	"context"
	"io"
	"math"
	"runtime/debug"

	"pictor/internal/job"
	"pictor/internal/vips"
)

const (
	workSide   = 1024 // longest side at which the subject's contour is worked out
	colourSide = 512  // longest side at which colours are separated: they vary slowly
	bandShare  = 0.025
	fitShare   = 0.02
)

// Shares of the progress, in percent of the whole.
const (
	decodedShare = 15
	foundShare   = 20
	refinedShare = 15
	paintedShare = 100 - decodedShare - foundShare - refinedShare
)

// removeBG cuts the subject out: a PNG with alpha of the picture's size.
//
// The shipped model sees 256 x 256 pixels. Such a coarse answer is cleaned,
// sharpened and fitted to the picture at up to 1024 pixels, and what was fitted
// is applied to the picture at full size, row by row, while it is encoded. A
// finer answer is the matte.
func (r *Renderer) removeBG(ctx context.Context, m model, in []byte, out io.Writer, steps *steps) (Result, error) {
	steps.of(100)

	decoded := steps.part(decodedShare)
	picture, err := r.decode(ctx, in, decoded)
	if err != nil {
		return Result{}, err
	}
	if isLarge(picture) {
		defer debug.FreeOSMemory() // or the next picture would come on top of this one
	}
	decoded(100)
	steps.laps.begin(Model)

	under := contrast(picture)
	w, h := within(workSide, picture.Width, picture.Height)
	work := shrink(picture, w, h, under, r.threads)
	subject, err := r.subject(ctx, m, picture, work, under)
	if err != nil {
		return Result{}, err
	}
	steps.add(foundShare)
	steps.laps.begin(Matte)

	c := &cutout{picture: picture, under: under}
	if m.Coarse && !r.plain {
		c.matte = refine(work, subject)
	} else {
		c.matte = takeOver(subject, picture.Width, picture.Height)
	}
	if !r.plain {
		w, h = within(colourSide, work.Width, work.Height)
		found := separate(shrink(work, w, h, 0, 1), c.matte.paint(work).resize(w, h))
		c.colours = &found
	}
	steps.add(refinedShare)
	steps.laps.begin(Encode)

	if err := r.paint(ctx, c, out, steps); err != nil {
		return Result{}, err
	}
	return Result{Type: job.PNG, Width: picture.Width, Height: picture.Height}, nil
}

// refine turns the model's small, hazy answer into a clean matte. The steps and
// their constants were measured on held-out pictures.
func refine(work *vips.Picture, subject plane) matte {
	longest := float64(max(work.Width, work.Height))
	width := max(2, bandShare*longest)

	alpha := subject.resize(work.Width, work.Height)
	inside := clean(alpha)
	snap(alpha, band(inside, work.Width, width))
	var m matte
	m.low, m.high = limits(inside, work.Width, width)
	m.edges = fitEdges(work, alpha, max(2, fitShare*longest))
	return m
}

// paint is the matte of a whole RGB picture.
func (m matte) paint(rgb *vips.Picture) plane {
	out := newPlane(rgb.Width, rgb.Height)
	painter, alpha := m.painter(rgb.Width, rgb.Height), make([]byte, rgb.Width)
	for y := range rgb.Height {
		painter.row(y, rgb.Pix[3*rgb.Width*y:], alpha)
		for x, a := range alpha {
			out.v[y*rgb.Width+x] = float32(a) / 255
		}
	}
	return out
}

// paintedPixels is how many pixels are painted between two looks at ctx.
const paintedPixels = 1 << 20

// paint writes the cut-out, strip by strip.
func (r *Renderer) paint(ctx context.Context, c *cutout, out io.Writer, steps *steps) error {
	w, h := c.picture.Width, c.picture.Height
	png, err := vips.NewPNGWriter(out, w, h, 4, vips.PNGOptions{Threads: r.threads})
	if err != nil {
		return err
	}
	rows := max(1, min(h, paintedPixels/w))
	strip := make([]byte, 4*w*rows)
	painted := 0
	for y := 0; y < h; y += rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(rows, h-y)
		parallel(r.threads, n, func(from, to int) {
			c.paintRows(y+from, y+to, strip[4*w*from:4*w*to])
		})
		if err := png.WriteRows(strip[:4*w*n]); err != nil {
			return err
		}
		share := (y + n) * paintedShare / h
		steps.add(share - painted)
		painted = share
	}
	return png.Close()
}

// within is the size of a picture shrunk so that no side is above `side`.
func within(side, w, h int) (int, int) {
	longest := max(w, h)
	if longest <= side {
		return w, h
	}
	scale := float64(side) / float64(longest)
	return max(1, int(math.Round(float64(w)*scale))), max(1, int(math.Round(float64(h)*scale)))
}

// contrast is the grey, dark or light, that stands out most from what is
// visible in a picture with alpha: what lies behind its transparent parts is
// unknown, and the model must not take it for the subject.
func contrast(p *vips.Picture) byte {
	if p.Bands != 2 && p.Bands != 4 {
		return 0
	}
	var sum, weight int
	for i := 0; i < len(p.Pix); i += p.Bands {
		alpha := int(p.Pix[i+p.Bands-1])
		green := int(p.Pix[i+(p.Bands-1)/2]) // the grey of a grey picture
		sum += green * alpha
		weight += alpha
	}
	if weight > 0 && sum/weight >= 128 {
		return 0
	}
	return 255
}
