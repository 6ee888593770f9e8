package graph

import (
	"fmt"
	"math"
)

// tensor is a value of the plan: float32, or int64 for shapes and indices.
type tensor struct {
	shape []int
	f     []float32
	i     []int64 // nil in a float tensor
	from  *buffer // memory behind f to give back after use; nil for constants and inputs
}

func (t tensor) isInt() bool { return t.i != nil }

// size is the number of elements in a shape. Shapes come out of model files:
// the product must not overflow.
func size(shape []int) (int, error) {
	total := 1
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %v has a negative side", shape)
		}
		if d > 0 && total > math.MaxInt/4/d {
			return 0, fmt.Errorf("shape %v is too large", shape)
		}
		total *= d
	}
	return total, nil
}

// product is size for shapes that are known to be sound.
func product(shape []int) int {
	total := 1
	for _, d := range shape {
		total *= d
	}
	return total
}

// axisOf resolves an axis that counts from the end when negative.
func axisOf(axis, rank int) (int, error) {
	if axis < -rank || axis >= rank {
		return 0, fmt.Errorf("axis %d of a tensor with %d", axis, rank)
	}
	if axis < 0 {
		axis += rank
	}
	return axis, nil
}

// buffer is memory of an arena. It goes back when no value shares it any more.
type buffer struct {
	data   []float32
	shared int
	used   bool // in this Run
}

// arena hands out the memory of one Run, and keeps it for the next one.
type arena struct {
	free  []*buffer
	held  int64 // bytes, free and in use
	limit int64
}

// memoryError refuses what would take too much memory.
type memoryError struct{ need, limit int64 }

func (e *memoryError) Error() string {
	return fmt.Sprintf("needs %d MB of memory at once, more than the limit of %d MB", e.need>>20, e.limit>>20)
}

// take finds memory for n floats, with anything in it.
func (a *arena) take(n int) (*buffer, error) {
	best := -1
	for i, b := range a.free {
		if cap(b.data) >= n && cap(b.data) <= 2*n+1024 && (best < 0 || cap(b.data) < cap(a.free[best].data)) {
			best = i
		}
	}
	if best >= 0 {
		b := a.free[best]
		a.free = append(a.free[:best], a.free[best+1:]...)
		b.data, b.shared, b.used = b.data[:n], 1, true
		return b, nil
	}
	bytes := 4 * int64(n)
	for len(a.free) > 0 && a.held+bytes > a.limit {
		last := len(a.free) - 1
		a.held -= 4 * int64(cap(a.free[last].data))
		a.free = a.free[:last]
	}
	if a.held+bytes > a.limit {
		return nil, &memoryError{a.held + bytes, a.limit}
	}
	a.held += bytes
	return &buffer{data: make([]float32, n), shared: 1, used: true}, nil
}

// giveBack takes back one share of b.
func (a *arena) giveBack(b *buffer) {
	if b.shared--; b.shared == 0 {
		a.free = append(a.free, b)
	}
}

// trim lets go of what the Run that ends did not use: memory for pictures of
// another size.
func (a *arena) trim() {
	kept := a.free[:0]
	for _, b := range a.free {
		if b.used {
			b.used = false
			kept = append(kept, b)
		} else {
			a.held -= 4 * int64(cap(b.data))
		}
	}
	clear(a.free[len(kept):])
	a.free = kept
}
