package graph

import (
	"fmt"
	"slices"
)

// layout is how the convolution of one input shape is cut into jobs. The rows
// of a strip are copied into a scratch that fits the processor's cache, with
// their padding, so that the inputs of a tap lie at the same distance from
// every pixel, and neighbouring pixels' next to each other.
type layout struct {
	n, h, w   int // input
	oh, ow    int // output
	top, left int // padding

	rows    int   // output rows of a strip
	inRows  int   // input rows of a strip
	pitch   int   // floats of a row in the scratch
	offsets []int // per tap, bytes
	in      int   // floats of the scratch for the input

	// flat: a strip is computed as one long row, the padding between the rows
	// included, and sorted out afterwards. It pays where rows are shorter than,
	// or no multiple of, a tile.
	flat     bool
	flatSize int // floats of one channel of the flat strip

	strips  int // per image
	shares  int // jobs that a strip is shared by, each with some of the blocks
	jobs    int
	scratch int // floats: input, flat result, one tile
}

// scratchFloats is the size of a strip's input that is aimed at: half of a
// second-level cache of 1 MB.
const scratchFloats = 128 << 10

// layoutFor plans the convolution of x.
func (c *convolution) layoutFor(x tensor, threads int) (*layout, error) {
	n, channels, h, w, err := c.window.planes(x)
	if err != nil {
		return nil, err
	}
	k := c.weights
	if err := k.fits(channels, c.window); err != nil {
		return nil, err
	}
	if l := c.last.Load(); l != nil && l.n == n && l.h == h && l.w == w {
		return l, nil
	}
	l := &layout{n: n, h: h, w: w}
	if l.oh, l.top, err = c.window.steps(0, h, k.kh); err != nil {
		return nil, err
	}
	if l.ow, l.left, err = c.window.steps(1, w, k.kw); err != nil {
		return nil, err
	}
	strideY, strideX := c.window.strides[0], c.window.strides[1]
	reachY, reachX := (k.kh-1)*c.window.dilations[0], (k.kw-1)*c.window.dilations[1]
	l.pitch = l.ow + reachX
	if strideX > 1 {
		l.pitch = l.ow * k.kw // for each tap of a row, the inputs of all pixels
	}
	rowFloats, err := size([]int{k.in, l.pitch})
	if err != nil {
		return nil, err
	}
	l.rows = (scratchFloats/rowFloats - reachY) / strideY
	l.rows = max(1, min(l.rows, (l.oh+threads-1)/threads))
	l.strips = (l.oh + l.rows - 1) / l.rows
	l.rows = (l.oh + l.strips - 1) / l.strips // even strips
	l.strips = (l.oh + l.rows - 1) / l.rows
	l.inRows = (l.rows-1)*strideY + reachY + 1

	cols := k.kernel.cols
	tiles, flatTiles := l.rows*((l.ow+cols-1)/cols), (l.rows*l.pitch+cols-1)/cols
	if strideX == 1 && strideY == 1 && flatTiles+flatTiles/10 < tiles {
		l.flat, l.flatSize = true, flatTiles*cols
	}
	tapX := c.window.dilations[1]
	if strideX > 1 {
		tapX = l.ow
	}
	if l.in, err = size([]int{k.in, l.inRows, l.pitch}); err != nil {
		return nil, err
	}
	for channel := range k.in {
		for ky := range k.kh {
			for kx := range k.kw {
				at := (channel*l.inRows+ky*c.window.dilations[0])*l.pitch + kx*tapX
				l.offsets = append(l.offsets, 4*at)
			}
		}
	}
	// The last tile reads past the last row, whatever lies there: columns do
	// not mix, and those that are not wanted are dropped.
	l.in += cols + reachX
	l.scratch = l.in + k.kernel.rows*(l.flatSize+cols)
	if l.scratch, err = size([]int{l.scratch}); err != nil {
		return nil, err
	}
	jobs := l.n * k.groups * l.strips
	l.shares = min(k.blocks, max(1, threads/max(jobs, 1)))
	l.jobs = jobs * l.shares
	c.last.Store(l)
	return l, nil
}

// columns is the range of output columns whose input for a horizontal tap lies
// within the picture, and the input column of the first.
func (l *layout) columns(w window, kx int) (from, to, ix int) {
	shift, stride := kx*w.dilations[1]-l.left, w.strides[1]
	if shift < 0 {
		from = (-shift + stride - 1) / stride
	}
	if shift < l.w {
		to = min(l.ow, (l.w-1-shift)/stride+1)
	}
	return min(from, to), to, from*stride + shift
}

// strip is one job: some output rows of one group of one image.
type strip struct {
	*convolution
	*layout
	number      int // among all strips
	image       int
	group       int
	row, count  int // output rows
	first, last int // blocks of output channels
	scratch     []float32
	add, out    []float32
	next        tile // kept here: one on the stack would escape at each kernel call
}

// locate finds out what job number n is.
func (s *strip) locate(job int) {
	k := s.weights
	share := job % s.shares
	s.number = job / s.shares
	s.row = s.number % s.strips * s.rows
	s.count = min(s.rows, s.oh-s.row)
	s.group = s.number / s.strips % k.groups
	s.image = s.number / s.strips / k.groups
	s.first, s.last = k.blocks*share/s.shares, k.blocks*(share+1)/s.shares
}

// fill copies the input rows into the scratch.
func (s *strip) fill(x []float32) {
	k, win := s.weights, s.window
	strideY := win.strides[0]
	rows := (s.count-1)*strideY + (k.kh-1)*win.dilations[0] + 1
	for channel := range k.in {
		plane := x[((s.image*k.groups+s.group)*k.in+channel)*s.h*s.w:][:s.h*s.w]
		for i := range rows {
			dst := s.scratch[(channel*s.inRows+i)*s.pitch:][:s.pitch]
			y := s.row*strideY - s.top + i
			if y < 0 || y >= s.h {
				clear(dst)
				continue
			}
			s.fillRow(dst, plane[y*s.w:][:s.w])
		}
	}
}

func (s *strip) fillRow(dst, src []float32) {
	if s.window.strides[1] == 1 {
		left := min(s.left, len(dst))
		clear(dst[:left])
		clear(dst[left+copy(dst[left:], src):])
		return
	}
	for kx := range s.weights.kw {
		segment := dst[kx*s.ow:][:s.ow]
		from, to, ix := s.columns(s.window, kx)
		clear(segment[:from])
		clear(segment[to:])
		for i := from; i < to; i++ {
			segment[i] = src[ix]
			ix += s.window.strides[1]
		}
	}
}

// bigWeights is the size in floats from which on each block's weights are used
// for the whole strip, not each tile's inputs for all blocks: they would not
// stay in the cache.
const bigWeights = 32 << 10

// compute runs the kernel over the strip.
func (s *strip) compute() {
	k := s.weights
	if s.flat {
		for block := s.first; block < s.last; block++ {
			s.computeFlat(block)
		}
		return
	}
	cols := k.kernel.cols
	perRow := (s.ow + cols - 1) / cols
	if len(k.data) > bigWeights {
		for block := s.first; block < s.last; block++ {
			for p := range s.count * perRow {
				s.computeTile(block, p/perRow, p%perRow*cols)
			}
		}
		return
	}
	for p := range s.count * perRow {
		for block := s.first; block < s.last; block++ {
			s.computeTile(block, p/perRow, p%perRow*cols)
		}
	}
}

// tile prepares a kernel call for a block.
func (s *strip) tile(block int) *tile {
	k := s.weights
	data, channel := k.block(s.group, block)
	s.next = tile{weights: &k.data[data], offsets: &s.offsets[0], taps: k.taps(), bias: &k.bias[channel], slope: &k.slope[channel]}
	return &s.next
}

// channels is where a block's rows of output begin, and how many of them there
// are.
func (s *strip) channels(block int) (from, count int) {
	k := s.weights
	first := block * k.kernel.rows
	return (s.image*k.groups+s.group)*k.out + first, min(k.kernel.rows, k.out-first)
}

// computeTile computes one tile of output row y of the strip, from column x.
func (s *strip) computeTile(block, y, x int) {
	k := s.weights
	t := s.tile(block)
	t.in = &s.scratch[y*s.window.strides[0]*s.pitch+x]
	channel, channels := s.channels(block)
	area := s.oh * s.ow
	at := channel*area + (s.row+y)*s.ow + x
	width := min(k.kernel.cols, s.ow-x)
	if channels == k.kernel.rows && width == k.kernel.cols {
		t.out, t.stride = &s.out[at], 4*area
		if s.add != nil {
			t.add = &s.add[at]
		}
		k.kernel.run(t)
		return
	}
	// At an edge the tile is computed aside, and what is wanted copied.
	aside := s.scratch[s.in:]
	t.out, t.stride = &aside[0], 4*k.kernel.cols
	if s.add != nil {
		for i := range channels {
			copy(aside[i*k.kernel.cols:][:width], s.add[at+i*area:])
		}
		t.add = t.out
	}
	k.kernel.run(t)
	for i := range channels {
		copy(s.out[at+i*area:][:width], aside[i*k.kernel.cols:])
	}
}

// computeFlat computes a block for the whole strip as one row.
func (s *strip) computeFlat(block int) {
	k := s.weights
	t := s.tile(block)
	flat := s.scratch[s.in:]
	t.stride = 4 * s.flatSize
	channel, channels := s.channels(block)
	area := s.oh * s.ow
	from := channel*area + s.row*s.ow
	if s.add != nil {
		for i := range channels {
			for y := range s.count {
				copy(flat[i*s.flatSize+y*s.pitch:][:s.ow], s.add[from+i*area+y*s.ow:])
			}
		}
	}
	for x := 0; x < s.count*s.pitch; x += k.kernel.cols {
		t.in, t.out = &s.scratch[x], &flat[x]
		if s.add != nil {
			t.add = t.out
		}
		k.kernel.run(t)
	}
	for i := range channels {
		for y := range s.count {
			copy(s.out[from+i*area+y*s.ow:][:s.ow], flat[i*s.flatSize+y*s.pitch:])
		}
	}
}

// fits checks an input's channels.
func (w *weights) fits(channels int, win window) error {
	if channels != w.groups*w.in {
		return fmt.Errorf("an input of %d channels for weights of %d", channels, w.groups*w.in)
	}
	kernel := [2]int{w.kh, w.kw}
	if win.kernel != [2]int{} && !slices.Equal(win.kernel[:], kernel[:]) {
		return fmt.Errorf("a kernel_shape of %v for weights of %v", win.kernel, kernel)
	}
	return nil
}
