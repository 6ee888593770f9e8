package graph

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// plan is a compiled model: steps in an order in which every input is computed
// before it is read.
type plan struct {
	inputs    []int
	output    int
	constants []tensor // by value; without data where a value is computed
	steps     []step
}

// step is one operator of the plan. Its values are numbers; -1 is an optional
// input that is absent.
type step struct {
	label string // for errors: operator and node
	run   operator
	in    []int
	out   int
	frees []int // values that nobody reads after this step
}

// operator computes one result. It must not change its inputs, except for
// memory that run.reuse gave it.
type operator func(r *run, in []tensor) (tensor, error)

// run is the state of one execution of a plan.
type run struct {
	ctx     context.Context
	arena   arena
	threads int

	values []tensor
	step   *step
	final  []float32 // the caller's memory, while the step that computes the output runs
}

// execute runs all steps and returns the output. Its memory is out, or of the
// arena, or an input's or constant's.
func (r *run) execute(p *plan, inputs []tensor, out []float32) (tensor, error) {
	r.values = append(r.values[:0], p.constants...)
	for i, t := range inputs {
		r.values[p.inputs[i]] = t
	}
	in := make([]tensor, 0, 8)
	for i := range p.steps {
		s := &p.steps[i]
		if err := r.ctx.Err(); err != nil {
			return tensor{}, err
		}
		in = in[:0]
		for _, v := range s.in {
			if v < 0 {
				in = append(in, tensor{})
			} else {
				in = append(in, r.values[v])
			}
		}
		r.step, r.final = s, nil
		if s.out == p.output {
			r.final = out
		}
		result, err := s.run(r, in)
		if err != nil {
			return tensor{}, fmt.Errorf("%s: %w", s.label, err)
		}
		r.values[s.out] = result
		for _, v := range s.frees {
			if b := r.values[v].from; b != nil {
				r.arena.giveBack(b)
			}
			r.values[v] = tensor{}
		}
	}
	result := r.values[p.output]
	if r.values[p.output].from != nil {
		r.arena.giveBack(result.from)
	}
	clear(r.values)
	return result, nil
}

// alloc makes a float tensor with anything in it.
func (r *run) alloc(shape ...int) (tensor, error) {
	n, err := size(shape)
	if err != nil {
		return tensor{}, err
	}
	shape = slices.Clone(shape)
	if r.final != nil && len(r.final) == n {
		return tensor{shape: shape, f: r.final}, nil
	}
	b, err := r.arena.take(n)
	if err != nil {
		return tensor{}, err
	}
	return tensor{shape: shape, f: b.data, from: b}, nil
}

// reuse makes a float tensor of t's shape, in t's memory if t, the step's input
// number i, is read by nobody after this element by element.
func (r *run) reuse(t tensor, i int) (tensor, error) {
	if t.from != nil && t.from.shared == 1 && r.final == nil && slices.Contains(r.step.frees, r.step.in[i]) {
		t.from.shared++ // for the result; the step's end gives back the input's share
		return t, nil
	}
	return r.alloc(t.shape...)
}

// alias is t's data under another shape.
func (r *run) alias(t tensor, shape ...int) tensor {
	if t.from != nil {
		t.from.shared++
	}
	t.shape = shape
	return t
}

// workers is how many goroutines share a number of pieces of work.
func (r *run) workers(pieces int) int { return max(min(r.threads, pieces), 1) }

// parallel does pieces of work on several goroutines, each with its own worker
// number. A panic in one of them becomes an error; after a cancellation, no
// further piece is begun.
func (r *run) parallel(pieces int, work func(worker, piece int)) error {
	var next atomic.Int64
	do := func(worker int) (err error) {
		defer recoverInto(&err)
		for {
			piece := int(next.Add(1)) - 1
			if piece >= pieces {
				return nil
			}
			if err := r.ctx.Err(); err != nil {
				return err
			}
			work(worker, piece)
		}
	}
	n := r.workers(pieces)
	errs := make([]error, n)
	var wait sync.WaitGroup
	for worker := 1; worker < n; worker++ {
		wait.Go(func() { errs[worker] = do(worker) })
	}
	errs[0] = do(0)
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
