package graph

import (
	"errors"
	"fmt"
	"slices"
)

// like allocates a result of the same kind, float or integer, as t.
func (r *run) like(t tensor, shape []int) (tensor, error) {
	if !t.isInt() {
		return r.alloc(shape...)
	}
	n, err := size(shape)
	if err != nil || n > maxInts {
		return tensor{}, errTooManyInts
	}
	return tensor{shape: slices.Clone(shape), i: make([]int64, n)}, nil
}

// strided reads src with a stride for each axis into dst, of the given shape.
// Strides may be 0 or negative.
func strided[T float32 | int64](dst []T, shape []int, src []T, base int, strides []int) {
	if len(dst) == 0 {
		return
	}
	if len(shape) == 0 {
		dst[0] = src[base]
		return
	}
	last := len(shape) - 1
	side, step := shape[last], strides[last]
	at := make([]int, last)
	for ; len(dst) > 0; dst = dst[side:] {
		from := base
		for i, a := range at {
			from += a * strides[i]
		}
		if step == 1 {
			copy(dst[:side], src[from:])
		} else {
			for i := range dst[:side] {
				dst[i] = src[from+i*step]
			}
		}
		for i := last - 1; i >= 0; i-- {
			if at[i]++; at[i] < shape[i] {
				break
			}
			at[i] = 0
		}
	}
}

// view is strided for a tensor of either kind.
func (r *run) view(x tensor, shape []int, base int, strides []int) (tensor, error) {
	out, err := r.like(x, shape)
	if err != nil {
		return tensor{}, err
	}
	if x.isInt() {
		strided(out.i, shape, x.i, base, strides)
	} else {
		strided(out.f, shape, x.f, base, strides)
	}
	return out, nil
}

// stridesOf are the steps of each axis.
func stridesOf(shape []int) []int {
	strides := make([]int, len(shape))
	step := 1
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = step
		step *= shape[i]
	}
	return strides
}

func (n *node) transpose() (operator, error) {
	order := n.ints("perm")
	return func(r *run, in []tensor) (tensor, error) {
		x := in[0]
		order := order
		if order == nil {
			for i := range x.shape {
				order = append(order, len(x.shape)-1-i)
			}
		}
		seen, err := axesOf(order, len(x.shape))
		if err != nil || slices.Contains(seen, false) {
			return tensor{}, fmt.Errorf("order %v of the axes of shape %v", order, x.shape)
		}
		steps := stridesOf(x.shape)
		shape, strides := make([]int, len(order)), make([]int, len(order))
		for i, a := range order {
			a, _ = axisOf(a, len(order)) // axesOf has checked
			shape[i], strides[i] = x.shape[a], steps[a]
		}
		return r.view(x, shape, 0, strides)
	}, nil
}

func expand(r *run, in []tensor) (tensor, error) {
	if len(in) < 2 {
		return tensor{}, errors.New("the shape is absent")
	}
	want, err := in[1].numbers()
	if err != nil {
		return tensor{}, err
	}
	if slices.ContainsFunc(want, func(side int) bool { return side < 0 }) {
		return tensor{}, fmt.Errorf("shape %v has a negative side", want)
	}
	shape, err := broadcastShape(in[0].shape, want)
	if err != nil {
		return tensor{}, err
	}
	return r.view(in[0], shape, 0, broadcastStrides(in[0].shape, len(shape)))
}

// slice takes parts of axes: inputs since operator set 10, attributes before.
func (n *node) slice() (operator, error) {
	starts, ends, axes, steps := n.list("starts", 1), n.list("ends", 2), n.list("axes", 3), n.list("steps", 4)
	return func(r *run, in []tensor) (tensor, error) {
		var lists [4][]int
		for i, list := range []func([]tensor) ([]int, error){starts, ends, axes, steps} {
			var err error
			if lists[i], err = list(in); err != nil {
				return tensor{}, err
			}
		}
		x := in[0]
		shape, strides, base := slices.Clone(x.shape), stridesOf(x.shape), 0
		for i := range lists[0] {
			axis, step := i, 1
			if lists[2] != nil && i < len(lists[2]) {
				axis = lists[2][i]
			}
			if lists[3] != nil && i < len(lists[3]) {
				step = lists[3][i]
			}
			axis, err := axisOf(axis, len(shape))
			if err != nil || i >= len(lists[1]) || step == 0 {
				return tensor{}, fmt.Errorf("slice %v of shape %v", lists, x.shape)
			}
			side := x.shape[axis]
			from, count := sliceRange(lists[0][i], lists[1][i], step, side)
			base += from * strides[axis]
			strides[axis] *= step
			shape[axis] = count
		}
		if product(shape) == 0 {
			base = 0
		}
		return r.view(x, shape, base, strides)
	}, nil
}

// sliceRange resolves one axis of a slice: where it starts, and how many.
func sliceRange(start, end, step, side int) (from, count int) {
	if step > 0 {
		from, to := clampIndex(start, side), clampIndex(end, side)
		return from, max(0, (to-from+step-1)/step)
	}
	if start < 0 {
		start += side
	}
	if end < 0 {
		end += side
	}
	from, to := min(start, side-1), max(end, -1)
	if from < 0 {
		return 0, 0
	}
	return from, max(0, (from-to-step-1)/-step)
}

func (n *node) split() (operator, error) {
	axis, sizes := n.int("axis", 0), n.list("split", 1)
	part, parts := n.part, n.parts
	return func(r *run, in []tensor) (tensor, error) {
		axis, err := axisOf(axis, len(in[0].shape))
		if err != nil {
			return tensor{}, err
		}
		list, err := sizes(in)
		if err != nil {
			return tensor{}, err
		}
		side := in[0].shape[axis]
		if list == nil {
			chunk := (side + parts - 1) / parts // the last one is smaller
			for i := range parts {
				list = append(list, max(0, min(chunk, side-i*chunk)))
			}
		}
		from := 0
		for i, s := range list {
			if s < 0 || s > side-from {
				return tensor{}, fmt.Errorf("parts %v of a side of %d", list, side)
			}
			if i == part {
				shape, strides := slices.Clone(in[0].shape), stridesOf(in[0].shape)
				shape[axis] = s
				if s == 0 {
					from = 0
				}
				return r.view(in[0], shape, from*strides[axis], strides)
			}
			from += s
		}
		return tensor{}, fmt.Errorf("%d parts, %d outputs", len(list), parts)
	}, nil
}

func (n *node) gather() (operator, error) {
	axis := n.int("axis", 0)
	return func(r *run, in []tensor) (tensor, error) {
		if len(in) < 2 {
			return tensor{}, errors.New("the indices are absent")
		}
		x := in[0]
		indices, err := in[1].numbers()
		if err != nil {
			return tensor{}, err
		}
		axis, err := axisOf(axis, len(x.shape))
		if err != nil {
			return tensor{}, err
		}
		outer, side, inner := product(x.shape[:axis]), x.shape[axis], product(x.shape[axis+1:])
		shape := slices.Concat([]int{}, x.shape[:axis], in[1].shape, x.shape[axis+1:])
		out, err := r.like(x, shape)
		if err != nil {
			return tensor{}, err
		}
		for o := range outer {
			for i, index := range indices {
				if index < 0 {
					index += side
				}
				if index < 0 || index >= side {
					return tensor{}, fmt.Errorf("index %d of a side of %d", index, side)
				}
				to, from := (o*len(indices)+i)*inner, (o*side+index)*inner
				if x.isInt() {
					copy(out.i[to:to+inner], x.i[from:])
				} else {
					copy(out.f[to:to+inner], x.f[from:])
				}
			}
		}
		return out, nil
	}, nil
}

func (n *node) concat() (operator, error) {
	axis := n.int("axis", 1)
	return func(r *run, in []tensor) (tensor, error) {
		first := in[0]
		axis, err := axisOf(axis, len(first.shape))
		if err != nil {
			return tensor{}, err
		}
		shape := slices.Clone(first.shape)
		for _, t := range in[1:] {
			if len(t.shape) != len(shape) || t.isInt() != first.isInt() {
				return tensor{}, fmt.Errorf("shapes %v and %v do not go together", shape, t.shape)
			}
			for i, side := range t.shape {
				if i == axis {
					shape[i] += side
				} else if side != shape[i] {
					return tensor{}, fmt.Errorf("shapes %v and %v do not go together", shape, t.shape)
				}
			}
		}
		out, err := r.like(first, shape)
		if err != nil {
			return tensor{}, err
		}
		outer, inner, at := product(shape[:axis]), product(shape[axis:]), 0
		for _, t := range in {
			n := product(t.shape[axis:])
			for o := range outer {
				if first.isInt() {
					copy(out.i[o*inner+at:o*inner+at+n], t.i[o*n:])
				} else {
					copy(out.f[o*inner+at:o*inner+at+n], t.f[o*n:])
				}
			}
			at += n
		}
		return out, nil
	}, nil
}

// pad widens axes with a constant, the edge or the mirrored tensor: inputs
// since operator set 11, attributes before.
func (n *node) pad() (operator, error) {
	mode, pads, axes := n.string("mode", "constant"), n.list("pads", 1), n.list("axes", 3)
	fill := n.float("value", 0)
	if mode != "constant" && mode != "edge" && mode != "reflect" {
		return nil, fmt.Errorf("mode %q is not supported", mode)
	}
	return func(r *run, in []tensor) (tensor, error) {
		x, fill := in[0], fill
		if v := at(in, 2); len(v.f)+len(v.i) == 1 {
			fill = slices.Concat(v.f, asFloats(v.i))[0]
		}
		list, err := pads(in)
		if err != nil {
			return tensor{}, err
		}
		which, err := axes(in)
		if err != nil {
			return tensor{}, err
		}
		if which == nil {
			for i := range x.shape {
				which = append(which, i)
			}
		}
		if _, err := axesOf(which, len(x.shape)); err != nil || len(list) != 2*len(which) {
			return tensor{}, fmt.Errorf("pads %v for axes %v of shape %v", list, which, x.shape)
		}
		shape, before := slices.Clone(x.shape), make([]int, len(x.shape))
		for i, a := range which {
			a, _ = axisOf(a, len(x.shape)) // axesOf has checked
			before[a] = list[i]
			shape[a] += list[i] + list[i+len(which)]
		}
		out, err := r.like(x, shape)
		if err != nil {
			return tensor{}, err
		}
		// For each axis, the index in the input of each index in the output.
		sources := make([][]int, len(shape))
		for a := range shape {
			for i := range shape[a] {
				at, err := padSource(mode, i-before[a], x.shape[a])
				if err != nil {
					return tensor{}, err
				}
				sources[a] = append(sources[a], at)
			}
		}
		if x.isInt() {
			padRows(out.i, x.i, shape, sources, stridesOf(x.shape), int64(fill))
		} else {
			padRows(out.f, x.f, shape, sources, stridesOf(x.shape), fill)
		}
		return out, nil
	}, nil
}

// padSource is the index that a padded index shows; negative for the fill.
func padSource(mode string, i, side int) (int, error) {
	if i >= 0 && i < side {
		return i, nil
	}
	switch {
	case mode == "constant":
		return -1, nil
	case side == 0 || mode == "reflect" && side == 1:
		return 0, errors.New("nothing to repeat")
	case mode == "edge":
		return max(0, min(i, side-1)), nil
	}
	period := 2 * (side - 1)
	i = ((i % period) + period) % period
	return min(i, period-i), nil
}

func padRows[T float32 | int64](dst, src []T, shape []int, sources [][]int, strides []int, fill T) {
	if len(shape) == 0 || len(dst) == 0 {
		copy(dst, src)
		return
	}
	inner := len(dst) / shape[0]
	for i, at := range sources[0] {
		row := dst[i*inner : (i+1)*inner]
		switch {
		case at < 0:
			for j := range row {
				row[j] = fill
			}
		case len(shape) == 1:
			row[0] = src[at]
		default:
			padRows(row, src[at*strides[0]:], shape[1:], sources[1:], strides[1:], fill)
		}
	}
}

// depthToSpace turns each b*b channels into one with b times the sides. The
// channels of one square are neighbours in mode CRD, one per block of channels
// in mode DCR.
func (n *node) depthToSpace() (operator, error) {
	b := n.int("blocksize", 0)
	neighbours := n.string("mode", "DCR") == "CRD"
	if b < 1 {
		return nil, fmt.Errorf("block size %d", b)
	}
	return func(r *run, in []tensor) (tensor, error) {
		x := in[0]
		if len(x.shape) != 4 || x.shape[1]%(b*b) != 0 || x.isInt() {
			return tensor{}, fmt.Errorf("shape %v with blocks of %d", x.shape, b)
		}
		channels, h, w := x.shape[1]/(b*b), x.shape[2], x.shape[3]
		out, err := r.alloc(x.shape[0], channels, h*b, w*b)
		if err != nil {
			return tensor{}, err
		}
		return out, r.parallel(x.shape[0]*channels*h, func(_, p int) {
			image, channel, y := p/h/channels, p/h%channels, p%h
			for sub := range b * b {
				source := sub*channels + channel
				if neighbours {
					source = channel*b*b + sub
				}
				src := x.f[((image*channels*b*b+source)*h+y)*w:][:w]
				dst := out.f[((image*channels+channel)*h*b+y*b+sub/b)*w*b:][:w*b]
				dst = dst[sub%b:]
				for i, v := range src {
					dst[i*b] = v
				}
			}
		})
	}, nil
}

// spaceToDepth is the inverse of depthToSpace in mode DCR.
func (n *node) spaceToDepth() (operator, error) {
	b := n.int("blocksize", 0)
	if b < 1 {
		return nil, fmt.Errorf("block size %d", b)
	}
	return func(r *run, in []tensor) (tensor, error) {
		x := in[0]
		if len(x.shape) != 4 || x.shape[2]%b != 0 || x.shape[3]%b != 0 {
			return tensor{}, fmt.Errorf("shape %v with blocks of %d", x.shape, b)
		}
		c, h, w := x.shape[1], x.shape[2]/b, x.shape[3]/b
		plane := h * b * w * b
		t, err := r.view(x, []int{x.shape[0], b, b, c, h, w}, 0, []int{c * plane, w * b, 1, plane, b * w * b, b})
		t.shape = []int{x.shape[0], c * b * b, h, w}
		return t, err
	}, nil
}
