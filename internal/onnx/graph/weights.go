package graph

import (
	"errors"
	"fmt"
)

// weights are a convolution's, packed for a kernel: for each group and each
// block of output channels, tap by tap, one weight per channel of the block.
// Channels that fill up the last block are zero.
type weights struct {
	kernel                  kernel
	groups, in, out, kh, kw int // in and out are per group
	blocks                  int // of output channels, per group
	data                    []float32
	bias, slope, ones       []float32 // per channel of the blocks; ones is the slope of no activation
	plain                   []float32 // as in the file, for convolutions of one channel per group
}

func (w *weights) taps() int { return w.in * w.kh * w.kw }

// block is where the weights, bias and slope of a block begin.
func (w *weights) block(group, block int) (data, channel int) {
	at := group*w.blocks + block
	return at * w.taps() * w.kernel.rows, at * w.kernel.rows
}

// pack reorders weights of the shape [out, in/groups, kh, kw].
func pack(k kernel, w, bias tensor, groups int, slope []float32) (*weights, error) {
	s := w.shape
	if s == nil {
		return nil, errors.New("the weights are absent")
	}
	if len(s) == 3 {
		s = []int{s[0], s[1], 1, s[2]}
	}
	if len(s) != 4 || w.isInt() || product(s) == 0 || groups < 1 || s[0]%groups != 0 {
		return nil, fmt.Errorf("weights of shape %v in %d groups are not supported", w.shape, groups)
	}
	p := &weights{kernel: k, groups: groups, in: s[1], out: s[0] / groups, kh: s[2], kw: s[3]}
	if p.in == 1 && p.out == 1 {
		p.plain = w.f
	}
	p.blocks = (p.out + k.rows - 1) / k.rows
	channels := groups * p.blocks * k.rows
	if channels > 1<<30/p.taps() {
		return nil, fmt.Errorf("weights of shape %v are too large", w.shape)
	}
	p.data = make([]float32, channels*p.taps())
	p.bias, p.slope, p.ones = make([]float32, channels), make([]float32, channels), make([]float32, channels)
	if bias.shape != nil && len(bias.f) != s[0] {
		return nil, errors.New("the bias does not fit the weights")
	}
	if len(slope) > 1 && len(slope) != s[0] {
		return nil, errors.New("the slopes do not fit the weights")
	}
	for channel := range s[0] {
		block, row := channel%p.out/k.rows, channel%p.out%k.rows
		data, at := p.block(channel/p.out, block)
		at += row
		for tap := range p.taps() {
			p.data[data+tap*k.rows+row] = w.f[channel*p.taps()+tap]
		}
		if bias.shape != nil {
			p.bias[at] = bias.f[channel]
		}
		p.ones[at], p.slope[at] = 1, 1
		if len(slope) > 0 {
			p.slope[at] = slope[min(channel, len(slope)-1)]
		}
	}
	return p, nil
}
