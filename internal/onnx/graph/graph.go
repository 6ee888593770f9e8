// Package graph runs ONNX models in pure Go: the portable engine.
//
// onnx-go decodes the file through our Backend (backend.go), after repair.go
// has put right what it cannot decode. compile.go turns the decoded graph into
// a plan: constants are folded, Conv + BatchNormalization + Add + activation
// become one step. run.go executes the plan: one operator after the other,
// each over the rows of its output on as many goroutines as allowed, in memory
// that is reused as soon as its last reader is done. Convolutions, where all
// the time goes, are computed in tiles by a kernel in assembly (AVX-512, AVX2)
// or in Go (kernel.go).
//
// A model file is not trusted: what is wrong with it is an error, never a
// panic, and a Run takes no more memory than Options allow.
package graph

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Options are the choices for one model.
type Options struct {
	// Threads is how many goroutines one Run may use; 0 is 1.
	Threads int
	// Output names the output to compute; empty is the first one. What only
	// other outputs need is not computed.
	Output string
	// MaxBytes limits the memory for inner results of one Run; 0 is 4 GB.
	MaxBytes int64
}

// Model is a compiled model with one input and one output. It may be used by
// several goroutines at once.
type Model struct {
	plan    *plan
	input   declaration
	threads int
	limit   int64

	mu   sync.Mutex
	idle []*run // with their memory; as many as ever ran at once
}

// Load compiles a model out of the bytes of its file. An operator that is not
// supported is an error here, which names it and its node.
func Load(model []byte, opt Options) (*Model, error) {
	return load(model, opt, kernels()[0])
}

func load(model []byte, opt Options, k kernel) (m *Model, err error) {
	// onnx-go and its tensors panic on some malformed files.
	defer recoverInto(&err)
	r, err := repair(model)
	if err != nil {
		return nil, err
	}
	n, err := decode(r)
	if err != nil {
		return nil, err
	}
	m = &Model{threads: max(opt.Threads, 1), limit: opt.MaxBytes}
	if m.limit <= 0 {
		m.limit = 4 << 30
	}
	if m.plan, err = compile(n, r, opt.Output, k, m.limit); err != nil {
		return nil, err
	}
	if len(r.inputs) > 0 {
		m.input = r.inputs[0]
	}
	return m, nil
}

// recoverInto turns a panic into an error.
func recoverInto(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("malformed model: %v", p)
	}
}

// Run computes the output for an input in NCHW order. out receives it when it
// has the right length; otherwise new memory is returned, as it is for nil.
// When ctx is cancelled, Run returns its error after the rows at hand.
func (m *Model) Run(ctx context.Context, shape [4]int, in, out []float32) ([]float32, [4]int, error) {
	if len(m.plan.inputs) != 1 {
		return nil, [4]int{}, fmt.Errorf("the model has %d inputs, not one", len(m.plan.inputs))
	}
	if n, err := size(shape[:]); err != nil || n != len(in) {
		return nil, [4]int{}, fmt.Errorf("input of shape %v holds %d values", shape, len(in))
	}
	if err := m.input.accepts(shape[:]); err != nil {
		return nil, [4]int{}, err
	}
	result, err := m.run(ctx, []tensor{{shape: shape[:], f: in}}, out)
	if err != nil {
		return nil, [4]int{}, err
	}
	if len(result.shape) != 4 || result.isInt() {
		return nil, [4]int{}, fmt.Errorf("the model's output has shape %v, not four sides", result.shape)
	}
	return result.f, [4]int(result.shape), nil
}

func (d declaration) accepts(shape []int) error {
	if !d.shaped {
		return nil
	}
	fits := len(d.shape) == len(shape)
	for i := range min(len(d.shape), len(shape)) {
		fits = fits && (d.shape[i] < 0 || d.shape[i] == shape[i])
	}
	if !fits {
		return fmt.Errorf("input of shape %v, the model takes %v", shape, d.shape)
	}
	return nil
}

// run executes the plan on any inputs.
func (m *Model) run(ctx context.Context, inputs []tensor, out []float32) (result tensor, err error) {
	defer recoverInto(&err)
	r := m.take()
	r.ctx = ctx
	result, err = r.execute(m.plan, inputs, out)
	if err != nil {
		return tensor{}, err // r is dropped: its memory is in an unknown state
	}
	if len(out) != len(result.f) {
		out = make([]float32, len(result.f))
	}
	// What an operator did not write there itself lies in the arena, which is
	// about to serve another Run, or is an input or a constant.
	copy(out, result.f)
	result.f, result.from = out, nil
	m.giveBack(r)
	return result, nil
}

// take finds the memory of an earlier run. A sync.Pool would lose it to
// garbage collections and to the other processors' pools: tens of megabytes to
// be allocated and cleared for every tile.
func (m *Model) take() *run {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := len(m.idle) - 1
	if last < 0 {
		return &run{arena: arena{limit: m.limit}, threads: m.threads}
	}
	r := m.idle[last]
	m.idle = m.idle[:last]
	return r
}

func (m *Model) giveBack(r *run) {
	r.ctx, r.step, r.final = nil, nil, nil
	r.arena.trim()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.idle = append(m.idle, r)
}

func outputOf(r *repaired, name string) (string, error) {
	if name == "" {
		return r.outputs[0], nil
	}
	if !slices.Contains(r.outputs, name) {
		return "", fmt.Errorf("the model has no output %q: it has %q", name, r.outputs)
	}
	return name, nil
}
