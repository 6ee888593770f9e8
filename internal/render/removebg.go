package render

import (
	"context"
	"fmt"
	"io"
	"math"

	"pictor/internal/job"
	"pictor/internal/onnx"
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
// The model sees 256 x 256 pixels. Its answer is cleaned, sharpened and fitted
// to the picture at up to 1024 pixels, and what was fitted is applied to the
// picture at full size, row by row, while it is encoded.
func (r *Renderer) removeBG(ctx context.Context, m model, in []byte, out io.Writer, steps *steps) (Result, error) {
	steps.of(100)

	picture, err := decode(ctx, in)
	if err != nil {
		return Result{}, err
	}
	steps.add(decodedShare)

	under := contrast(picture)
	w, h := within(workSide, picture.Width, picture.Height)
	work := shrink(picture, w, h, under, r.threads)
	subject, err := r.subject(ctx, m, work)
	if err != nil {
		return Result{}, err
	}
	steps.add(foundShare)

	c := &cutout{picture: picture, under: under}
	c.matte, c.colours = refine(work, subject)
	steps.add(refinedShare)

	if err := r.paint(ctx, c, out, steps); err != nil {
		return Result{}, err
	}
	return Result{Type: job.PNG, Width: picture.Width, Height: picture.Height}, nil
}

// subject asks the model for the subject of the picture and of its mirror
// image, and averages the two answers.
func (r *Renderer) subject(ctx context.Context, m model, work *vips.Picture) (plane, error) {
	in, mirrored := onnx.NewTensor(1, 3, m.Side, m.Side), onnx.NewTensor(1, 3, m.Side, m.Side)
	for c := range 3 {
		copy(in.Data[c*m.Side*m.Side:], channel(work, c).resize(m.Side, m.Side).v)
	}
	mirror(mirrored.Data, in.Data, m.Side)

	answer, answerToMirrored := onnx.NewTensor(1, 1, m.Side, m.Side), onnx.NewTensor(1, 1, m.Side, m.Side)
	if err := r.run(ctx, m, in, answer); err != nil {
		return plane{}, err
	}
	if err := r.run(ctx, m, mirrored, answerToMirrored); err != nil {
		return plane{}, err
	}

	if !finite(answer.Data) || !finite(answerToMirrored.Data) {
		return plane{}, fmt.Errorf("model %s: %w", m.Name, errNoNumber)
	}

	p := newPlane(m.Side, m.Side)
	mirror(p.v, answerToMirrored.Data, m.Side)
	for i, v := range answer.Data {
		p.v[i] = clamp01((p.v[i] + v) / 2)
	}
	return p, nil
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

// mirror turns rows of w values back to front.
func mirror(to, from []float32, w int) {
	for y := 0; y < len(from); y += w {
		for x := range w {
			to[y+x] = from[y+w-1-x]
		}
	}
}

// refine turns the model's small, hazy answer into a clean matte and the
// colours on both sides of its edge. The steps and their constants were
// measured on held-out pictures.
func refine(work *vips.Picture, subject plane) (matte, colours) {
	longest := float64(max(work.Width, work.Height))
	width := max(2, bandShare*longest)

	alpha := subject.resize(work.Width, work.Height)
	inside := clean(alpha)
	snap(alpha, band(inside, work.Width, width))
	var m matte
	m.low, m.high = limits(inside, work.Width, width)
	m.edges = fitEdges(work, alpha, max(2, fitShare*longest))

	w, h := within(colourSide, work.Width, work.Height)
	return m, separate(shrink(work, w, h, 0, 1), m.paint(work).resize(w, h))
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
