package graph

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// resampling is how Resize and Upsample find an output's value.
type resampling struct {
	mode       string // nearest, linear or cubic
	coordinate string
	nearest    string
	cubicA     float32
	exclude    bool
}

// resize makes the operators of Resize and Upsample.
func (n *node) resize() (operator, error) {
	f := resampling{
		mode:       n.string("mode", "nearest"),
		coordinate: n.string("coordinate_transformation_mode", "half_pixel"),
		nearest:    n.string("nearest_mode", "round_prefer_floor"),
		cubicA:     n.float("cubic_coeff_a", -0.75),
		exclude:    n.int("exclude_outside", 0) == 1,
	}
	scalesAt, sizesAt := 2, 3
	if n.op == "Upsample" || n.compiler.opset < 11 {
		f.coordinate, f.nearest, scalesAt, sizesAt = "asymmetric", "simple", 1, math.MaxInt
	}
	var fixed []float32
	if n.op == "Upsample" {
		fixed, _ = attributeOf[[]float32](n, "scales")
	}
	switch {
	case f.mode == "bilinear":
		f.mode = "linear"
	case f.mode != "nearest" && f.mode != "linear" && f.mode != "cubic":
		return nil, fmt.Errorf("mode %q is not supported", f.mode)
	}
	if math.IsNaN(float64(f.position(0, 1, 1, 1))) {
		return nil, fmt.Errorf("coordinate_transformation_mode %q is not supported", f.coordinate)
	}
	if n.int("antialias", 0) != 0 || n.string("keep_aspect_ratio_policy", "stretch") != "stretch" {
		return nil, errors.New("antialias and keep_aspect_ratio_policy are not supported")
	}
	axes := n.ints("axes")
	return func(r *run, in []tensor) (tensor, error) {
		x := in[0]
		if len(x.shape) < 2 || x.isInt() || product(x.shape) == 0 {
			return tensor{}, fmt.Errorf("shape %v is not supported", x.shape)
		}
		scales := fixed
		if s := at(in, scalesAt); s.shape != nil {
			scales = s.f
		}
		sizes, err := at(in, sizesAt).numbers()
		if err != nil {
			return tensor{}, err
		}
		shape, factors, err := resizedShape(x.shape, scales, sizes, axes)
		if err != nil {
			return tensor{}, err
		}
		if slices.Equal(shape, x.shape) {
			// As ONNX Runtime does, even where a scale of 1.04 that is rounded
			// down would shift the picture.
			return r.alias(x, shape...), nil
		}
		out, err := r.alloc(shape...)
		if err != nil {
			return tensor{}, err
		}
		rank := len(shape)
		h, w, oh, ow := x.shape[rank-2], x.shape[rank-1], shape[rank-2], shape[rank-1]
		rows, columns := f.taps(h, oh, factors[rank-2]), f.taps(w, ow, factors[rank-1])
		return out, r.parallel(product(shape[:rank-2]), func(_, p int) {
			resample(out.f[p*oh*ow:][:oh*ow], x.f[p*h*w:][:h*w], w, ow, rows, columns)
		})
	}, nil
}

// resizedShape applies scales or sizes, for all axes or for some, to a shape.
func resizedShape(shape []int, scales []float32, sizes, axes []int) ([]int, []float32, error) {
	if axes == nil {
		for i := range shape {
			axes = append(axes, i)
		}
	}
	if _, err := axesOf(axes, len(shape)); err != nil {
		return nil, nil, err
	}
	out, factors := slices.Clone(shape), make([]float32, len(shape))
	for i := range factors {
		factors[i] = 1
	}
	if len(scales) != len(axes) && len(sizes) != len(axes) {
		return nil, nil, fmt.Errorf("scales %v and sizes %v for shape %v", scales, sizes, shape)
	}
	for i, a := range axes {
		a, _ = axisOf(a, len(shape)) // axesOf has checked
		if len(sizes) > 0 {
			out[a] = sizes[i]
			factors[a] = float32(sizes[i]) / float32(shape[a])
		} else {
			factors[a] = scales[i]
			out[a] = int(min(float32(shape[a])*scales[i], math.MaxInt32))
		}
		if out[a] < 1 || !(factors[a] > 0) {
			return nil, nil, fmt.Errorf("a side of %d becomes %d", shape[a], out[a])
		}
		if a < len(shape)-2 && out[a] != shape[a] {
			return nil, nil, fmt.Errorf("axis %d of shape %v cannot be resized", a, shape)
		}
	}
	return out, factors, nil
}

// position is where in the input an output's pixel lies, computed in float32
// as ONNX Runtime does. It is no number for a mode that is not known.
func (f resampling) position(i, length, resized int, scale float32) float32 {
	x := float32(i)
	switch f.coordinate {
	case "half_pixel":
		return (x+0.5)/scale - 0.5
	case "pytorch_half_pixel":
		if resized == 1 {
			return 0
		}
		return (x+0.5)/scale - 0.5
	case "asymmetric":
		return x / scale
	case "align_corners":
		if resized == 1 {
			return 0
		}
		return x * float32(length-1) / float32(resized-1)
	case "tf_half_pixel_for_nn":
		return (x + 0.5) / scale
	}
	return float32(math.NaN())
}

// tap is what one output pixel is made of, along one axis.
type tap struct {
	count  int
	at     [4]int
	weight [4]float32
}

// taps computes those of all output pixels of an axis.
func (f resampling) taps(length, resized int, scale float32) []tap {
	all := make([]tap, resized)
	for i := range all {
		x := f.position(i, length, resized, scale)
		t := &all[i]
		switch f.mode {
		case "nearest":
			t.count, t.weight[0] = 1, 1
			t.at[0] = f.round(x, scale)
		case "linear":
			x = max(0, min(x, float32(length-1)))
			low := int(x)
			part := x - float32(low)
			t.count, t.at, t.weight = 2, [4]int{low, low + 1}, [4]float32{1 - part, part}
			if part == 0 {
				t.count = 1
			}
		case "cubic":
			low := int(math.Floor(float64(x)))
			t.count, t.at, t.weight = 4, [4]int{low - 1, low, low + 1, low + 2}, cubic(x-float32(low), f.cubicA)
			if f.exclude {
				t.exclude(length)
			}
		}
		for k := range t.at {
			t.at[k] = max(0, min(t.at[k], length-1))
		}
	}
	return all
}

func (f resampling) round(x, scale float32) int {
	v := float64(x)
	// Within a few units in the last place a position is the tie that exact
	// arithmetic gives: 1/(2/7) is 3.4999998 in float32.
	if half := math.Floor(v) + 0.5; math.Abs(v-half) < 1e-6*max(1, math.Abs(v)) {
		v = half
	}
	switch f.nearest {
	case "round_prefer_floor":
		return int(math.Ceil(v - 0.5))
	case "round_prefer_ceil":
		return int(math.Floor(v + 0.5))
	case "ceil":
		return int(math.Ceil(v))
	case "simple": // before operator set 11
		if scale < 1 {
			return int(math.Ceil(v))
		}
	}
	return int(math.Floor(v))
}

// cubic are the weights of four neighbours for a position between the middle
// two.
func cubic(x, a float32) [4]float32 {
	near := func(d float32) float32 { return ((a+2)*d-(a+3))*d*d + 1 }
	far := func(d float32) float32 { return ((a*d-5*a)*d+8*a)*d - 4*a }
	return [4]float32{far(x + 1), near(x), near(1 - x), far(2 - x)}
}

// exclude takes out neighbours that lie outside, and has the others share
// their weight.
func (t *tap) exclude(length int) {
	sum := float32(0)
	for k, at := range t.at {
		if at < 0 || at >= length {
			t.weight[k] = 0
		}
		sum += t.weight[k]
	}
	for k := range t.weight {
		t.weight[k] /= sum
	}
}

// resample computes one plane.
func resample(dst, src []float32, w, ow int, rows, columns []tap) {
	blended := make([]float32, w)
	for i, row := range rows {
		out := dst[i*ow:][:ow]
		if i > 0 && row == rows[i-1] {
			copy(out, dst[(i-1)*ow:])
			continue
		}
		line := src[row.at[0]*w:][:w]
		if row.count > 1 {
			line = blended
			clear(line)
			for k := range row.count {
				weight := row.weight[k]
				for x, v := range src[row.at[k]*w:][:w] {
					line[x] += weight * v
				}
			}
		}
		for x := range columns {
			c := &columns[x]
			if c.count == 1 {
				out[x] = line[c.at[0]]
				continue
			}
			sum := float32(0)
			for k := range c.count {
				sum += c.weight[k] * line[c.at[k]]
			}
			out[x] = sum
		}
	}
}
