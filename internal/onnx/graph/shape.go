package graph

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// numbers are the elements of an integer tensor, saturated.
func (t tensor) numbers() ([]int, error) {
	if t.shape == nil {
		return nil, nil
	}
	if !t.isInt() || len(t.i) > maxInts {
		return nil, errors.New("a list of integers is needed")
	}
	all := make([]int, len(t.i))
	for i, v := range t.i {
		all[i] = int(max(min(v, math.MaxInt32), math.MinInt32))
	}
	return all, nil
}

// list is an argument that is an attribute in old operator sets and an input
// in new ones.
func (n *node) list(name string, input int) func(in []tensor) ([]int, error) {
	fixed := n.ints(name)
	return func(in []tensor) ([]int, error) {
		if input < len(in) && in[input].shape != nil {
			return in[input].numbers()
		}
		return fixed, nil
	}
}

func identity(r *run, in []tensor) (tensor, error) { return r.alias(in[0], in[0].shape...), nil }

// dropout does nothing but in training.
func dropout(r *run, in []tensor) (tensor, error) {
	if training := at(in, 2); slices.ContainsFunc(training.i, func(v int64) bool { return v != 0 }) {
		return tensor{}, errors.New("training_mode is not supported")
	}
	return identity(r, in)
}

func (n *node) reshape() (operator, error) {
	target := n.list("shape", 1)
	keepZero := n.int("allowzero", 0) == 1
	return func(r *run, in []tensor) (tensor, error) {
		want, err := target(in)
		if err != nil {
			return tensor{}, err
		}
		have := in[0].shape
		shape := make([]int, len(want))
		known, open := 1, -1
		for i, side := range want {
			switch {
			case side == -1 && open < 0:
				open = i
				continue
			case side == 0 && !keepZero && i < len(have):
				side = have[i]
			}
			shape[i] = side
			known *= max(side, 0)
		}
		total := product(have)
		if open >= 0 && known > 0 {
			shape[open] = total / known
		}
		if n, err := size(shape); err != nil || n != total {
			return tensor{}, fmt.Errorf("shape %v cannot become %v", have, want)
		}
		return r.alias(in[0], shape...), nil
	}, nil
}

func (n *node) flatten() (operator, error) {
	axis := n.int("axis", 1)
	return func(r *run, in []tensor) (tensor, error) {
		at := axis
		if at < 0 {
			at += len(in[0].shape)
		}
		if at < 0 || at > len(in[0].shape) {
			return tensor{}, fmt.Errorf("axis %d of shape %v", axis, in[0].shape)
		}
		return r.alias(in[0], product(in[0].shape[:at]), product(in[0].shape[at:])), nil
	}, nil
}

// axesOf resolves a list of axes: true for each that is in it.
func axesOf(axes []int, rank int) ([]bool, error) {
	marked := make([]bool, rank)
	for _, a := range axes {
		a, err := axisOf(a, rank)
		if err != nil {
			return nil, err
		}
		if marked[a] {
			return nil, fmt.Errorf("axis %d twice", a)
		}
		marked[a] = true
	}
	return marked, nil
}

func (n *node) squeeze() (operator, error) {
	list := n.list("axes", 1)
	return func(r *run, in []tensor) (tensor, error) {
		axes, err := list(in)
		if err != nil {
			return tensor{}, err
		}
		drop, err := axesOf(axes, len(in[0].shape))
		if err != nil {
			return tensor{}, err
		}
		shape := []int{}
		for i, side := range in[0].shape {
			if drop[i] && side != 1 {
				return tensor{}, fmt.Errorf("axis %d of shape %v is not 1", i, in[0].shape)
			}
			if !drop[i] && (axes != nil || side != 1) {
				shape = append(shape, side)
			}
		}
		return r.alias(in[0], shape...), nil
	}, nil
}

func (n *node) unsqueeze() (operator, error) {
	list := n.list("axes", 1)
	return func(r *run, in []tensor) (tensor, error) {
		axes, err := list(in)
		if err != nil {
			return tensor{}, err
		}
		insert, err := axesOf(axes, len(in[0].shape)+len(axes))
		if err != nil {
			return tensor{}, err
		}
		rest := in[0].shape
		shape := make([]int, len(insert))
		for i := range shape {
			if shape[i] = 1; !insert[i] {
				shape[i], rest = rest[0], rest[1:]
			}
		}
		return r.alias(in[0], shape...), nil
	}, nil
}

func (n *node) shapeOf() (operator, error) {
	start, end := n.int("start", 0), n.int("end", math.MaxInt32>>11)
	return func(r *run, in []tensor) (tensor, error) {
		rank := len(in[0].shape)
		from, to := clampIndex(start, rank), clampIndex(end, rank)
		out := tensor{i: []int64{}}
		for _, side := range in[0].shape[min(from, to):to] {
			out.i = append(out.i, int64(side))
		}
		out.shape = []int{len(out.i)}
		return out, nil
	}, nil
}

// clampIndex resolves a bound of a range, which counts from the end when
// negative and may lie outside.
func clampIndex(i, n int) int {
	if i < 0 {
		i += n
	}
	return max(0, min(i, n))
}

func (n *node) cast() (operator, error) {
	to := n.int("to", 0)
	return func(r *run, in []tensor) (tensor, error) {
		x := in[0]
		switch to {
		case typeFloat, typeDouble, typeFloat16:
			if !x.isInt() {
				return r.alias(x, x.shape...), nil
			}
			return tensor{shape: x.shape, f: asFloats(x.i)}, nil
		case typeInt32, typeInt64:
			if x.isInt() {
				return x, nil
			}
			if len(x.f) > maxInts {
				return tensor{}, errTooManyInts
			}
			out := tensor{shape: x.shape, i: make([]int64, len(x.f))}
			for i, v := range x.f {
				out.i[i] = int64(v)
			}
			return out, nil
		}
		return tensor{}, fmt.Errorf("elements of type %d are not supported", to)
	}, nil
}

func (n *node) constantOfShape() (operator, error) {
	value := tensor{f: []float32{0}}
	if t, ok := attributeOf[dense](n, "value"); ok {
		var err error
		if value, err = constant(t); err != nil {
			return nil, err
		}
	}
	if len(value.f)+len(value.i) != 1 {
		return nil, errors.New("the value is not a single one")
	}
	return func(r *run, in []tensor) (tensor, error) {
		shape, err := in[0].numbers()
		if err != nil {
			return tensor{}, err
		}
		shape = append([]int{}, shape...)
		if !value.isInt() {
			out, err := r.alloc(shape...)
			for i := range out.f {
				out.f[i] = value.f[0]
			}
			return out, err
		}
		count, err := size(shape)
		if err != nil || count > maxInts {
			return tensor{}, errTooManyInts
		}
		return tensor{shape: shape, i: slices.Repeat(value.i, count)}, nil
	}, nil
}

func asFloats(ints []int64) []float32 {
	floats := make([]float32, len(ints))
	for i, v := range ints {
		floats[i] = float32(v)
	}
	return floats
}
