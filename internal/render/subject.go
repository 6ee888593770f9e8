package render

import (
	"context"
	"fmt"
	"math"

	"pictor/internal/onnx"
	"pictor/internal/vips"
)

const (
	// flatSpan is the difference of a mask's values below which nothing was
	// found, or nothing left out: such a mask is not stretched, which would make
	// a subject of noise.
	flatSpan = 1. / 8
	// haze is how far from 0 and 1 a fine mask counts as 0 and 1. Unseen as it
	// is, it would double the size of the file.
	haze = 1. / 64
)

// view is how a model sees the picture: w x h pixels at x, y of its square
// input.
type view struct{ x, y, w, h int }

func (m model) view(picture *vips.Picture) view {
	if !m.Letterbox {
		return view{0, 0, m.Side, m.Side}
	}
	longest := max(picture.Width, picture.Height)
	w, h := max(1, m.Side*picture.Width/longest), max(1, m.Side*picture.Height/longest)
	return view{(m.Side - w) / 2, (m.Side - h) / 2, w, h}
}

// subject asks the model how much of each place is subject, 0..1. The answer
// spans the whole picture and has the size of the model's view.
func (r *Renderer) subject(ctx context.Context, m model, picture, work *vips.Picture, under byte) (plane, error) {
	v := m.view(picture)
	if work.Width < v.w || work.Height < v.h {
		work = shrink(picture, min(v.w, picture.Width), min(v.h, picture.Height), under, r.threads)
	}
	in := m.tensor(work, v)
	answer := onnx.NewTensor(1, 1, m.Side, m.Side)
	if err := r.ask(ctx, m, in, answer); err != nil {
		return plane{}, err
	}
	if m.Mirrored {
		mirrored, other := onnx.NewTensor(1, 3, m.Side, m.Side), onnx.NewTensor(1, 1, m.Side, m.Side)
		mirror(mirrored.Data, in.Data, m.Side)
		if err := r.ask(ctx, m, mirrored, other); err != nil {
			return plane{}, err
		}
		mirror(mirrored.Data[:len(other.Data)], other.Data, m.Side)
		for i, v := range mirrored.Data[:len(other.Data)] {
			answer.Data[i] = (answer.Data[i] + v) / 2
		}
	}
	return m.mask(answer.Data, v), nil
}

// ask runs the model. What comes out are numbers, or it is an error.
func (r *Renderer) ask(ctx context.Context, m model, in, out onnx.Tensor) error {
	if err := r.run(ctx, m, in, out); err != nil {
		return err
	}
	if !finite(out.Data) {
		return fmt.Errorf("model %s: %w", m.Name, errNoNumber)
	}
	return nil
}

// tensor is the model's input: the picture's values as the model was trained on
// them, and 0 around its view.
func (m model) tensor(rgb *vips.Picture, v view) onnx.Tensor {
	var bands [3]plane
	brightest := float32(0)
	for c := range bands {
		bands[c] = channel(rgb, c).resize(v.w, v.h)
		for _, value := range bands[c].v {
			brightest = max(brightest, value)
		}
	}
	gain := float32(1)
	if m.Brightest && brightest > 0 {
		gain = 1 / brightest
	}
	in := onnx.NewTensor(1, 3, m.Side, m.Side)
	for c, band := range bands {
		scale, shift := gain/m.Std[c], m.Mean[c]/m.Std[c]
		for y := range v.h {
			row := in.Data[(c*m.Side+v.y+y)*m.Side+v.x:][:v.w]
			for x, value := range band.row(y) {
				row[x] = value*scale - shift
			}
		}
	}
	return in
}

// mask makes 0..1 of the model's answer, and drops what lies around its view.
func (m model) mask(answer []float32, v view) plane {
	p := newPlane(v.w, v.h)
	for y := range v.h {
		copy(p.row(y), answer[(v.y+y)*m.Side+v.x:])
	}
	if m.Sigmoid {
		for i, x := range p.v {
			p.v[i] = float32(1 / (1 + math.Exp(-float64(x))))
		}
	}
	least, span := float32(0), float32(1)
	if m.Stretch {
		greatest := p.v[0]
		least = p.v[0]
		for _, x := range p.v {
			least, greatest = min(least, x), max(greatest, x)
		}
		if span = greatest - least; span < flatSpan {
			least, span = 0, 1
		}
	}
	for i, x := range p.v {
		p.v[i] = clamp01((x - least) / span)
	}
	return p
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

// takeOver makes a matte of a mask that is fine enough to be one, for a picture
// of w x h pixels: what is soft in it stays so.
func takeOver(mask plane, w, h int) matte {
	mask = mask.resize(min(mask.w, w), min(mask.h, h))
	out := newPlane(mask.w, mask.h)
	for i, v := range mask.v {
		out.v[i] = clamp01((v - haze) / (1 - 2*haze))
	}
	// Where alpha is at least and at most the same, the edge model has no say.
	none := newPlane(1, 1)
	return matte{low: out, high: out, edges: edgeModel{none, none, none, none}}
}
