package graph

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// piece is how many elements a goroutine takes at a time.
const piece = 1 << 14

// elements runs work over n elements in pieces.
func (r *run) elements(n int, work func(from, to int)) error {
	return r.parallel((n+piece-1)/piece, func(_, p int) { work(p*piece, min((p+1)*piece, n)) })
}

// unary makes an operator out of a function over a run of elements.
func unary(f func(dst, src []float32)) operator {
	return func(r *run, in []tensor) (tensor, error) {
		x := in[0]
		if x.isInt() {
			return tensor{}, errors.New("integers are not supported")
		}
		out, err := r.reuse(x, 0)
		if err != nil {
			return tensor{}, err
		}
		return out, r.elements(len(x.f), func(from, to int) { f(out.f[from:to], x.f[from:to]) })
	}
}

// each makes an operator out of a function of one element.
func each(f func(float32) float32) operator {
	return unary(func(dst, src []float32) {
		for i, x := range src {
			dst[i] = f(x)
		}
	})
}

func leakyRelu(dst, src []float32, slope float32) {
	dst = dst[:len(src)]
	for i, x := range src {
		if x < 0 {
			x *= slope
		}
		dst[i] = x
	}
}

func sigmoid(dst, src []float32) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = 1 / (1 + exp(-x))
	}
}

// exp is e to the x within 2e-7 of its size, several times faster than
// math.Exp: two to a whole number, by its bits, times a polynomial.
func exp(x float32) float32 {
	if x != x {
		return x
	}
	x = max(-87, min(88, x))
	whole := float32(math.Floor(float64(x*math.Log2E + 0.5)))
	// ln 2 in two parts, the first exact in few bits.
	f := x - whole*0.693359375 + whole*2.12194440e-4
	y := float32(1.9875691500e-4)
	y = y*f + 1.3981999507e-3
	y = y*f + 8.3334519073e-3
	y = y*f + 4.1665795894e-2
	y = y*f + 1.6666665459e-1
	y = y*f + 5.0000001201e-1
	y = y*f*f + f + 1
	return y * math.Float32frombits(uint32(int32(whole)+127)<<23)
}

// prelu is LeakyRelu with a slope for each channel, or any other shape that
// broadcasts to the input's.
func prelu(r *run, in []tensor) (tensor, error) {
	if len(in) < 2 || in[0].isInt() || in[1].isInt() {
		return tensor{}, errors.New("two inputs of floats are needed")
	}
	return broadcast(r, in, 0, 1, in[0].f, in[1].f, func(dst, x, slope []float32, dx, ds int) {
		for i := range dst {
			v := x[i*dx]
			if v < 0 {
				v *= slope[i*ds]
			}
			dst[i] = v
		}
	})
}

// clip limits values, by inputs since operator set 11, by attributes before.
func (n *node) clip() (operator, error) {
	low, high := n.float("min", float32(math.Inf(-1))), n.float("max", float32(math.Inf(1)))
	return func(r *run, in []tensor) (tensor, error) {
		low, high := low, high
		for i, limit := range []*float32{nil, &low, &high} {
			if i == 0 || i >= len(in) || in[i].shape == nil {
				continue
			}
			if len(in[i].f) != 1 {
				return tensor{}, errors.New("the limits must be single numbers")
			}
			*limit = in[i].f[0]
		}
		return unary(func(dst, src []float32) {
			for i, x := range src {
				if x < low {
					x = low
				}
				if x > high {
					x = high
				}
				dst[i] = x
			}
		})(r, in)
	}, nil
}

// arithmetic makes the operators of two, or any number of, inputs.
func (n *node) arithmetic() (operator, error) {
	op := n.op
	if _, ok := n.attributes["axis"]; ok {
		return nil, errors.New("broadcasting along an axis is not supported")
	}
	return func(r *run, in []tensor) (tensor, error) {
		if slices.ContainsFunc(in, func(t tensor) bool { return t.shape == nil }) {
			return tensor{}, errors.New("an input is absent")
		}
		if len(in) == 1 && (op == "Min" || op == "Max" || op == "Sum") {
			return r.alias(in[0], in[0].shape...), nil
		}
		result := in[0]
		for i := 1; i < len(in); i++ {
			if in[i].isInt() != result.isInt() {
				return tensor{}, errors.New("integers and floats are mixed")
			}
			previous := result
			var err error
			if result.isInt() {
				result, err = binaryInt(op, result, in[i])
			} else if f := binaryRow[float32](op); f != nil {
				// Only the last round may write into an input: one may occur twice.
				first, second := -1, -1
				if i == len(in)-1 {
					second = i
					if i == 1 {
						first = 0
					}
				}
				result, err = broadcast(r, []tensor{previous, in[i]}, first, second, previous.f, in[i].f, f)
			} else {
				err = errUnsupported
			}
			if i > 1 && previous.from != nil && err == nil {
				r.arena.giveBack(previous.from)
			}
			if err != nil {
				return tensor{}, err
			}
		}
		return result, nil
	}, nil
}

// row computes a run of elements: x and y advance by dx and dy, 0 or 1.
type row[T float32 | int64] func(dst, x, y []T, dx, dy int)

func binaryRow[T float32 | int64](op string) row[T] {
	switch op {
	case "Add", "Sum":
		return func(dst, x, y []T, dx, dy int) {
			for i := range dst {
				dst[i] = x[i*dx] + y[i*dy]
			}
		}
	case "Sub":
		return func(dst, x, y []T, dx, dy int) {
			for i := range dst {
				dst[i] = x[i*dx] - y[i*dy]
			}
		}
	case "Mul":
		return func(dst, x, y []T, dx, dy int) {
			for i := range dst {
				dst[i] = x[i*dx] * y[i*dy]
			}
		}
	case "Div":
		return func(dst, x, y []T, dx, dy int) {
			for i := range dst {
				dst[i] = x[i*dx] / y[i*dy]
			}
		}
	case "Min":
		return func(dst, x, y []T, dx, dy int) {
			for i := range dst {
				dst[i] = min(x[i*dx], y[i*dy])
			}
		}
	case "Max":
		return func(dst, x, y []T, dx, dy int) {
			for i := range dst {
				dst[i] = max(x[i*dx], y[i*dy])
			}
		}
	case "Pow":
		return func(dst, x, y []T, dx, dy int) {
			for i := range dst {
				dst[i] = T(math.Pow(float64(x[i*dx]), float64(y[i*dy])))
			}
		}
	}
	return nil
}

// binaryInt is arithmetic on shapes and indices.
func binaryInt(op string, x, y tensor) (tensor, error) {
	shape, err := broadcastShape(x.shape, y.shape)
	if err != nil {
		return tensor{}, err
	}
	f := binaryRow[int64](op)
	if f == nil || op == "Div" && slices.Contains(y.i, 0) {
		return tensor{}, fmt.Errorf("%s of these integers is not supported", op)
	}
	n, err := size(shape)
	if err != nil || n > maxInts {
		return tensor{}, errTooManyInts
	}
	out := tensor{shape: shape, i: make([]int64, n)}
	broadcastRows(out.i, x.i, y.i, shape, x.shape, y.shape, f)
	return out, nil
}

// maxInts bounds integer tensors, which are shapes and indices.
const maxInts = 1 << 20

var errTooManyInts = errors.New("a large tensor of integers is not supported")

// broadcast computes an operator of two inputs, in the memory of the first or
// the second if that is free and of the right shape. ix and iy are their
// numbers among the step's inputs; negative for none.
func broadcast(r *run, in []tensor, ix, iy int, x, y []float32, f row[float32]) (tensor, error) {
	shape, err := broadcastShape(in[0].shape, in[1].shape)
	if err != nil {
		return tensor{}, err
	}
	var out tensor
	switch {
	case slices.Equal(shape, in[0].shape) && ix >= 0:
		out, err = r.reuse(in[0], ix)
	case slices.Equal(shape, in[1].shape) && iy >= 0:
		out, err = r.reuse(in[1], iy)
	default:
		out, err = r.alloc(shape...)
	}
	if err != nil {
		return tensor{}, err
	}
	if slices.Equal(in[0].shape, in[1].shape) {
		return out, r.elements(len(out.f), func(from, to int) { f(out.f[from:to], x[from:to], y[from:to], 1, 1) })
	}
	broadcastRows(out.f, x, y, shape, in[0].shape, in[1].shape, f)
	return out, nil
}

func broadcastShape(a, b []int) ([]int, error) {
	shape := make([]int, max(len(a), len(b)))
	for i := range shape {
		x, y := sideFromEnd(a, len(shape)-i), sideFromEnd(b, len(shape)-i)
		if x != y && x != 1 && y != 1 {
			return nil, fmt.Errorf("shapes %v and %v do not go together", a, b)
		}
		shape[i] = x
		if x == 1 {
			shape[i] = y
		}
	}
	return shape, nil
}

func sideFromEnd(shape []int, i int) int {
	if i > len(shape) {
		return 1
	}
	return shape[len(shape)-i]
}

// broadcastRows calls f for the longest runs over which each operand either
// advances or stands still.
func broadcastRows[T float32 | int64](dst, x, y []T, shape, xs, ys []int, f row[T]) {
	if len(dst) == 0 {
		return
	}
	// inner is the run's length, over the last axes; dx and dy how the operands
	// advance in it.
	inner, dx, dy := 1, -1, -1
	axis := len(shape)
	for ; axis > 0; axis-- {
		side := shape[axis-1]
		if side == 1 {
			continue
		}
		stepX, stepY := 1, 1
		if sideFromEnd(xs, len(shape)-axis+1) == 1 {
			stepX = 0
		}
		if sideFromEnd(ys, len(shape)-axis+1) == 1 {
			stepY = 0
		}
		if dx >= 0 && (stepX != dx || stepY != dy) {
			break
		}
		dx, dy = stepX, stepY
		inner *= side
	}
	dx, dy = max(dx, 0), max(dy, 0)
	outer := shape[:axis]
	stridesX, stridesY := broadcastStrides(xs, len(shape)), broadcastStrides(ys, len(shape))
	at := make([]int, axis)
	for ; len(dst) > 0; dst = dst[inner:] {
		fromX, fromY := 0, 0
		for i, a := range at {
			fromX += a * stridesX[i]
			fromY += a * stridesY[i]
		}
		f(dst[:inner], x[fromX:], y[fromY:], dx, dy)
		for i := axis - 1; i >= 0; i-- {
			if at[i]++; at[i] < outer[i] {
				break
			}
			at[i] = 0
		}
	}
}

// broadcastStrides are the steps of each axis in a tensor that is broadcast to
// a rank: 0 where it has one element only.
func broadcastStrides(shape []int, rank int) []int {
	strides := make([]int, rank)
	step := 1
	for i := 1; i <= len(shape); i++ {
		if side := shape[len(shape)-i]; side != 1 {
			strides[rank-i] = step
			step *= side
		}
	}
	return strides
}
