package graph

import (
	"errors"
	"fmt"
)

// window is how a convolution or pooling steps over a picture: index 0 is
// vertical, 1 horizontal. One-dimensional models have the horizontal only.
type window struct {
	rank                       int // of the attributes: 0 if there are none
	kernel, strides, dilations [2]int
	before, after              [2]int // pads
	auto                       string
	ceil                       bool
}

// window reads the attributes. kernel is zero where it is absent.
func (n *node) window() (window, error) {
	w := window{strides: [2]int{1, 1}, dilations: [2]int{1, 1}, auto: n.string("auto_pad", "NOTSET"), ceil: n.int("ceil_mode", 0) == 1}
	for _, name := range []string{"kernel_shape", "strides", "dilations"} {
		if v := n.ints(name); v != nil {
			w.rank = len(v)
		}
	}
	if v := n.ints("pads"); v != nil {
		w.rank = len(v) / 2
	}
	if w.rank > 2 {
		return w, errors.New("three dimensions are not supported")
	}
	read := func(to *[2]int, v []int) {
		if v != nil {
			copy(to[2-w.rank:], v)
			if w.rank == 1 {
				to[0] = 1
			}
		}
	}
	read(&w.kernel, n.sizes("kernel_shape", w.rank, 1))
	read(&w.strides, n.sizes("strides", w.rank, 1))
	read(&w.dilations, n.sizes("dilations", w.rank, 1))
	if v := n.sizes("pads", 2*w.rank, 0); v != nil {
		copy(w.before[2-w.rank:], v[:w.rank])
		copy(w.after[2-w.rank:], v[w.rank:])
	}
	switch w.auto {
	case "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER":
		return w, nil
	}
	return w, fmt.Errorf("auto_pad %q is not supported", w.auto)
}

// planes reads a tensor as pictures: batch, channels, height, width.
func (w window) planes(t tensor) (n, c, h, wide int, err error) {
	s := t.shape
	switch {
	case t.isInt():
		err = errors.New("integers are not supported")
	case len(s) == 4 && w.rank != 1:
		n, c, h, wide = s[0], s[1], s[2], s[3]
	case len(s) == 3 && w.rank != 2:
		n, c, h, wide = s[0], s[1], 1, s[2]
	default:
		err = fmt.Errorf("shape %v is not supported", s)
	}
	return n, c, h, wide, err
}

// shapeLike is the shape of a result of a two- or one-dimensional operator.
func shapeLike(t tensor, channels, h, w int) []int {
	if len(t.shape) == 3 {
		return []int{t.shape[0], channels, w}
	}
	return []int{t.shape[0], channels, h, w}
}

// steps is how many positions the window takes on an axis of a length, and how
// much padding comes before.
func (w window) steps(axis, length, kernel int) (count, before int, err error) {
	stride, reach := w.strides[axis], (kernel-1)*w.dilations[axis]+1
	if length == 0 {
		return 0, 0, errors.New("an empty picture")
	}
	before, after := w.before[axis], w.after[axis]
	switch w.auto {
	case "VALID":
		before, after = 0, 0
	case "SAME_UPPER", "SAME_LOWER":
		count = (length + stride - 1) / stride
		total := max(0, (count-1)*stride+reach-length)
		before = total / 2
		if w.auto == "SAME_LOWER" {
			before = total - before
		}
		return count, before, nil
	}
	room := length + before + after - reach
	if room < 0 {
		return 0, 0, fmt.Errorf("a side of %d is too small for a window of %d", length, reach)
	}
	count = room/stride + 1
	if w.ceil && room%stride != 0 && count*stride < length+before {
		count++ // the last window begins within the picture, or it is left out
	}
	return count, before, nil
}
