package graph

import (
	"fmt"
	"slices"
)

// convTranspose makes the operator of ConvTranspose: a convolution of single
// pixels gives what each input pixel adds to each pixel under its window, then
// the windows are added up.
func (n *node) convTranspose() (operator, error) {
	win, err := n.window()
	if err != nil {
		return nil, err
	}
	t := &transposed{window: win, groups: n.int("group", 1), slope: n.slope, kernel: n.compiler.kernel}
	if v := n.sizes("output_padding", max(win.rank, 1), 0); v != nil {
		copy(t.extra[2-len(v):], v)
	}
	if v := n.sizes("output_shape", max(win.rank, 1), 1); v != nil {
		t.side = [2]int{1, 1}
		copy(t.side[2-len(v):], v)
	}
	if w, ok := n.constant(1); ok {
		if err := t.pack(w); err != nil {
			return nil, err
		}
		n.in = slices.Clone(n.in)
		n.in[1] = -1 // packed: the step does not read it
		return func(r *run, in []tensor) (tensor, error) { return t.run(r, in[0], at(in, 2)) }, nil
	}
	return func(r *run, in []tensor) (tensor, error) {
		t := *t
		if err := t.pack(at(in, 1)); err != nil {
			return tensor{}, err
		}
		return t.run(r, in[0], at(in, 2))
	}, nil
}

// transposed is a ConvTranspose.
type transposed struct {
	window  window
	groups  int
	extra   [2]int // output_padding
	side    [2]int // output_shape; zero if absent
	slope   []float32
	kernel  kernel
	out     int // output channels per group
	kh, kw  int
	columns *convolution
}

// pack turns weights of the shape [in, out/groups, kh, kw] into those of the
// convolution of single pixels.
func (t *transposed) pack(w tensor) error {
	s := w.shape
	if len(s) == 3 {
		s = []int{s[0], s[1], 1, s[2]}
	}
	if len(s) != 4 || w.isInt() || product(s) == 0 || t.groups < 1 || s[0]%t.groups != 0 {
		return fmt.Errorf("weights of shape %v in %d groups are not supported", w.shape, t.groups)
	}
	in := s[0] / t.groups
	t.out, t.kh, t.kw = s[1], s[2], s[3]
	each := t.out * t.kh * t.kw
	turned := tensor{shape: []int{t.groups * each, in, 1, 1}, f: make([]float32, len(w.f))}
	for channel := range s[0] {
		group, c := channel/in, channel%in
		for i := range each {
			turned.f[(group*each+i)*in+c] = w.f[channel*each+i]
		}
	}
	packed, err := pack(t.kernel, turned, tensor{}, t.groups, nil)
	if err != nil {
		return err
	}
	t.columns = &convolution{window: window{strides: [2]int{1, 1}, dilations: [2]int{1, 1}}, weights: packed}
	return nil
}

func (t *transposed) run(r *run, x, bias tensor) (tensor, error) {
	n, channels, h, w, err := t.window.planes(x)
	if err != nil {
		return tensor{}, err
	}
	if err := t.columns.weights.fits(channels, window{}); err != nil {
		return tensor{}, err
	}
	if win := t.window.kernel; win != [2]int{} && win != [2]int{t.kh, t.kw} {
		return tensor{}, fmt.Errorf("a kernel_shape of %v for weights of %v", win, [2]int{t.kh, t.kw})
	}
	all := t.groups * t.out
	if bias.shape != nil && len(bias.f) != all || len(t.slope) > 1 && len(t.slope) != all {
		return tensor{}, fmt.Errorf("bias or slopes do not fit %d channels", all)
	}
	oh, top, err := t.steps(0, h, t.kh)
	if err != nil {
		return tensor{}, err
	}
	ow, left, err := t.steps(1, w, t.kw)
	if err != nil {
		return tensor{}, err
	}
	out, err := r.alloc(shapeLike(x, all, oh, ow)...)
	if err != nil {
		return tensor{}, err
	}
	final := r.final
	r.final = nil // an inner result must not lie in the caller's memory
	windows, err := t.columns.run(r, x, tensor{})
	r.final = final
	if err != nil {
		return tensor{}, err
	}
	err = r.parallel(n*all, func(_, p int) {
		plane := out.f[p*oh*ow:][:oh*ow]
		for i := range plane {
			plane[i] = 0
			if bias.shape != nil {
				plane[i] = bias.f[p%all]
			}
		}
		for oy := range oh {
			row := plane[oy*ow:][:ow]
			for ky := range t.kh {
				y := oy + top - ky*t.window.dilations[0]
				if y < 0 || y%t.window.strides[0] != 0 || y/t.window.strides[0] >= h {
					continue
				}
				for kx := range t.kw {
					from := windows.f[(((p*t.kh+ky)*t.kw+kx)*h+y/t.window.strides[0])*w:][:w]
					addSpread(row, from, kx*t.window.dilations[1]-left, t.window.strides[1])
				}
			}
		}
		if len(t.slope) > 0 {
			leakyRelu(plane, plane, t.slope[min(p%all, len(t.slope)-1)])
		}
	})
	r.arena.giveBack(windows.from)
	return out, err
}

// addSpread adds src to every stride-th element of dst from an index that may
// lie outside.
func addSpread(dst, src []float32, at, stride int) {
	if at < 0 {
		skip := (-at + stride - 1) / stride
		src, at = src[min(skip, len(src)):], at+skip*stride
	}
	for _, v := range src {
		if at >= len(dst) {
			return
		}
		dst[at] += v
		at += stride
	}
}

// steps is the output's side and how much of it is cut off before.
func (t *transposed) steps(axis, length, kernel int) (side, before int, err error) {
	win := t.window
	if length == 0 {
		return 0, 0, fmt.Errorf("an empty picture")
	}
	full := win.strides[axis]*(length-1) + t.extra[axis] + (kernel-1)*win.dilations[axis] + 1
	side, before = full-win.before[axis]-win.after[axis], win.before[axis]
	switch {
	case t.side != [2]int{}:
		side = t.side[axis]
	case win.auto == "SAME_UPPER" || win.auto == "SAME_LOWER":
		side = length * win.strides[axis]
	case win.auto == "VALID":
		side, before = full, 0
	}
	if t.side != [2]int{} || win.auto == "SAME_UPPER" || win.auto == "SAME_LOWER" {
		total := max(0, full-side)
		if before = total / 2; win.auto != "SAME_UPPER" {
			before = total - total/2
		}
	}
	if side < 1 {
		return 0, 0, fmt.Errorf("a side of %d becomes %d", length, side)
	}
	return side, before, nil
}
