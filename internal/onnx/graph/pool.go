package graph

import (
	"errors"
	"math"
)

type poolKind int

const (
	maxPool poolKind = iota
	averagePool
)

// pool makes the operators of MaxPool and AveragePool.
func (n *node) pool(kind poolKind) (operator, error) {
	win, err := n.window()
	if err != nil {
		return nil, err
	}
	if win.kernel == [2]int{} {
		return nil, errors.New("attribute kernel_shape is absent")
	}
	countPads := n.int("count_include_pad", 0) == 1
	return func(r *run, in []tensor) (tensor, error) {
		x := in[0]
		images, channels, h, w, err := win.planes(x)
		if err != nil {
			return tensor{}, err
		}
		kernel := win.kernel
		if kernel[0] == 0 {
			kernel[0] = 1
		}
		oh, top, err := win.steps(0, h, kernel[0])
		if err != nil {
			return tensor{}, err
		}
		ow, left, err := win.steps(1, w, kernel[1])
		if err != nil {
			return tensor{}, err
		}
		out, err := r.alloc(shapeLike(x, channels, oh, ow)...)
		if err != nil {
			return tensor{}, err
		}
		l := &layout{h: h, w: w, oh: oh, ow: ow, top: top, left: left}
		rows := win.counts(0, oh, top, h, kernel[0], countPads)
		columns := win.counts(1, ow, left, w, kernel[1], countPads)
		return out, r.parallel(images*channels, func(_, p int) {
			for oy := range oh {
				row := out.f[(p*oh+oy)*ow:][:ow]
				poolRow(kind, row, x.f[p*h*w:][:h*w], l, win, kernel, oy)
				if kind == averagePool {
					for i := range row {
						row[i] /= float32(rows[oy] * columns[i])
					}
				}
			}
		})
	}, nil
}

// poolRow computes one output row: the largest of each window, or the sum.
func poolRow(kind poolKind, row, plane []float32, l *layout, win window, kernel [2]int, oy int) {
	start := float32(math.Inf(-1))
	if kind == averagePool {
		start = 0
	}
	for i := range row {
		row[i] = start
	}
	for ky := range kernel[0] {
		y := oy*win.strides[0] - l.top + ky*win.dilations[0]
		if y < 0 || y >= l.h {
			continue
		}
		src := plane[y*l.w:][:l.w]
		for kx := range kernel[1] {
			from, to, ix := l.columns(win, kx)
			if kind == averagePool {
				for i := from; i < to; i++ {
					row[i] += src[ix]
					ix += win.strides[1]
				}
				continue
			}
			for i := from; i < to; i++ {
				row[i] = max(row[i], src[ix])
				ix += win.strides[1]
			}
		}
	}
}

// counts is how many elements of each window an average divides by, along one
// axis: those in the picture, or those in its padding too.
func (w window) counts(axis, windows, before, length, kernel int, pads bool) []int {
	low, high := 0, length
	if pads {
		low, high = -before, length+w.after[axis]
		if w.auto != "NOTSET" {
			high = math.MaxInt32 // SAME pads as much as the last window needs
		}
	}
	counts := make([]int, windows)
	for i := range counts {
		for k := range kernel {
			if at := i*w.strides[axis] - before + k*w.dilations[axis]; at >= low && at < high {
				counts[i]++
			}
		}
		counts[i] = max(counts[i], 1)
	}
	return counts
}

func globalAveragePool(r *run, in []tensor) (tensor, error) {
	x := in[0]
	if len(x.shape) < 3 || x.isInt() || product(x.shape) == 0 {
		return tensor{}, errors.New("the input is no picture")
	}
	shape := make([]int, len(x.shape))
	for i := range shape {
		shape[i] = 1
	}
	copy(shape, x.shape[:2])
	out, err := r.alloc(shape...)
	if err != nil {
		return tensor{}, err
	}
	area := product(x.shape[2:])
	return out, r.parallel(len(out.f), func(_, p int) {
		sum := 0.0
		for _, v := range x.f[p*area:][:area] {
			sum += float64(v)
		}
		out.f[p] = float32(sum / float64(area))
	})
}
