package graph

import (
	"errors"
	"slices"
	"sync/atomic"
)

// conv makes the operator of Conv, with what fuse.go has put into the node:
// input 3 is added to the result, then the slope of the activation applies.
func (n *node) conv() (operator, error) {
	win, err := n.window()
	if err != nil {
		return nil, err
	}
	groups, slope, kernel := n.int("group", 1), n.slope, n.compiler.kernel
	c := &convolution{window: win}
	if t, ok := n.constant(1); ok && (!n.has(2) || n.compiler.isConst[n.in[2]]) {
		bias, _ := n.constant(2)
		if c.weights, err = pack(kernel, t, bias, groups, slope); err != nil {
			return nil, err
		}
		n.in = slices.Clone(n.in)
		for i := 1; i < min(3, len(n.in)); i++ {
			n.in[i] = -1 // packed: the step does not read it
		}
		return func(r *run, in []tensor) (tensor, error) { return c.run(r, in[0], at(in, 3)) }, nil
	}
	return func(r *run, in []tensor) (tensor, error) {
		w, err := pack(kernel, at(in, 1), at(in, 2), groups, slope)
		if err != nil {
			return tensor{}, err
		}
		c := &convolution{window: win, weights: w}
		return c.run(r, in[0], at(in, 3))
	}, nil
}

// at is an optional input.
func at(in []tensor, i int) tensor {
	if i < len(in) {
		return in[i]
	}
	return tensor{}
}

// convolution is a Conv with its weights.
type convolution struct {
	window  window
	weights *weights
	last    atomic.Pointer[layout] // the last one used: models run on few shapes
}

// run convolves x, adds a tensor if there is one, and activates.
func (c *convolution) run(r *run, x, add tensor) (tensor, error) {
	l, err := c.layoutFor(x, r.threads)
	if err != nil {
		return tensor{}, err
	}
	shape := shapeLike(x, c.weights.groups*c.weights.out, l.oh, l.ow)
	if add.shape != nil && !slices.Equal(add.shape, shape) {
		return c.runApart(r, x, add)
	}
	var out tensor
	if add.shape != nil && add.from != x.from {
		out, err = r.reuse(add, 3) // each tile is read before it is written
	} else {
		out, err = r.alloc(shape...)
	}
	if err != nil {
		return tensor{}, err
	}
	if c.weights.in == 1 && c.weights.out == 1 {
		return out, c.runSingle(r, l, x.f, add.f, out.f)
	}
	scratch := make([]*buffer, r.workers(l.jobs))
	for i := range scratch {
		if scratch[i], err = r.arena.take(l.scratch); err != nil {
			return tensor{}, err
		}
	}
	at := make([]int, len(scratch)) // which strip lies in a worker's scratch
	for i := range at {
		at[i] = -1
	}
	err = r.parallel(l.jobs, func(worker, job int) {
		s := strip{convolution: c, layout: l, scratch: scratch[worker].data, add: add.f, out: out.f}
		s.locate(job)
		if at[worker] != s.number {
			s.fill(x.f)
			at[worker] = s.number
		}
		s.compute()
	})
	for _, b := range scratch {
		r.arena.giveBack(b)
	}
	return out, err
}

// runApart is for an addition that broadcasts, which the kernel cannot do.
func (c *convolution) runApart(r *run, x, add tensor) (tensor, error) {
	w := *c.weights
	w.slope = w.ones
	plain := &convolution{window: c.window, weights: &w}
	final := r.final
	r.final = nil // an inner result must not lie in the caller's memory
	sum, err := plain.run(r, x, tensor{})
	if err != nil {
		return tensor{}, err
	}
	r.final = final
	out, err := broadcast(r, []tensor{sum, add}, -1, -1, sum.f, add.f, binaryRow[float32]("Add"))
	if err != nil {
		return tensor{}, err
	}
	r.arena.giveBack(sum.from)
	channels := w.groups * w.out
	if len(out.shape) < 3 || out.shape[1] != channels {
		return tensor{}, errors.New("the tensor to add does not fit")
	}
	area := product(out.shape[2:])
	return out, r.parallel(out.shape[0]*channels, func(_, p int) {
		channel := p % channels
		_, at := w.block(channel/w.out, channel%w.out/w.kernel.rows)
		plane := out.f[p*area:][:area]
		leakyRelu(plane, plane, c.weights.slope[at+channel%w.out%w.kernel.rows])
	})
}

// runSingle is for one channel per group: there is nothing to reuse in a tile
// of several channels.
func (c *convolution) runSingle(r *run, l *layout, x, add, out []float32) error {
	w, win := c.weights, c.window
	return r.parallel(l.n*w.groups, func(_, p int) {
		channel := p % w.groups
		_, at := w.block(channel, 0)
		in, sums := x[p*l.h*l.w:][:l.h*l.w], out[p*l.oh*l.ow:][:l.oh*l.ow]
		for oy := range l.oh {
			row := sums[oy*l.ow:][:l.ow]
			// What is to be added may lie in the same memory.
			for i := range row {
				b := w.bias[at]
				if add != nil {
					b += add[(p*l.oh+oy)*l.ow+i]
				}
				row[i] = b
			}
			for ky := range w.kh {
				y := oy*win.strides[0] - l.top + ky*win.dilations[0]
				if y < 0 || y >= l.h {
					continue
				}
				for kx := range w.kw {
					weight := w.plain[(channel*w.kh+ky)*w.kw+kx]
					from, to, ix := l.columns(win, kx)
					for i := from; i < to; i++ {
						row[i] += weight * in[y*l.w+ix]
						ix += win.strides[1]
					}
				}
			}
			leakyRelu(row, row, w.slope[at])
		}
	})
}
