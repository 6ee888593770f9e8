package graph

import "unsafe"

// kernel computes tiles of a convolution: rows output channels by cols
// neighbouring pixels at a time. Which one is in use depends on the processor;
// weights are packed for it at Load.
type kernel struct {
	name       string
	rows, cols int
	run        func(*tile)
}

// tile is the work of one kernel call. Pointers, not slices, because assembly
// reads it; convolve has checked every bound before it fills one in.
type tile struct {
	weights *float32 // per tap, one weight for each of the rows
	offsets *int     // per tap, bytes from in to the first of the cols inputs
	taps    int      // at least 1
	in      *float32
	out     *float32
	stride  int      // bytes from one row to the next, of out and of add
	add     *float32 // nil, or added before the activation; may be out itself
	bias    *float32 // one for each row
	slope   *float32 // one for each row: what is below zero is multiplied by it
}

// portable is the kernel for processors without one in assembly. Two rows by
// four columns of sums fit the registers of every 64-bit processor.
func portable() kernel { return kernel{name: "go", rows: 4, cols: 16, run: tileGo} }

func tileGo(t *tile) {
	const rows, cols = 4, 16
	offsets := unsafe.Slice(t.offsets, t.taps)
	for row := 0; row < rows; row += 2 {
		for col := 0; col < cols; col += 4 {
			in := unsafe.Add(unsafe.Pointer(t.in), 4*col)
			var a0, a1, a2, a3, b0, b1, b2, b3 float32
			weights := unsafe.Add(unsafe.Pointer(t.weights), 4*row)
			for tap, offset := range offsets {
				w := (*[2]float32)(unsafe.Add(weights, 4*rows*tap))
				x := (*[4]float32)(unsafe.Add(in, offset))
				p, q := w[0], w[1]
				a0 += p * x[0]
				b0 += q * x[0]
				a1 += p * x[1]
				b1 += q * x[1]
				a2 += p * x[2]
				b2 += q * x[2]
				a3 += p * x[3]
				b3 += q * x[3]
			}
			t.finish(row, col, [4]float32{a0, a1, a2, a3})
			t.finish(row+1, col, [4]float32{b0, b1, b2, b3})
		}
	}
}

// finish stores four sums of one row: bias, addition, activation.
func (t *tile) finish(row, col int, sums [4]float32) {
	at := row*t.stride + 4*col
	out := (*[4]float32)(unsafe.Add(unsafe.Pointer(t.out), at))
	bias := *(*float32)(unsafe.Add(unsafe.Pointer(t.bias), 4*row))
	slope := *(*float32)(unsafe.Add(unsafe.Pointer(t.slope), 4*row))
	if t.add != nil {
		add := (*[4]float32)(unsafe.Add(unsafe.Pointer(t.add), at))
		for i := range sums {
			sums[i] += add[i]
		}
	}
	for i, v := range sums {
		v += bias
		if v < 0 {
			v *= slope
		}
		out[i] = v
	}
}
