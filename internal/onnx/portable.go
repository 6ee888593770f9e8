package onnx

import (
	"context"
	"fmt"

	"pictor/internal/onnx/graph"
)

// goEngine is the portable engine, internal/onnx/graph. That package imports
// nothing of this one.
type goEngine struct{ threads int }

func openGo(cfg Config) (Engine, error) { return goEngine{max(cfg.Threads, 1)}, nil }

func (goEngine) Name() string     { return Go }
func (goEngine) Provider() string { return "CPU" }
func (goEngine) Close() error     { return nil }

func (e goEngine) Load(name string, onnx []byte, opt Options) (Model, error) {
	_, out, err := declared(onnx, opt)
	if err == nil && out.Type != graph.Float32 {
		err = fmt.Errorf("its output %q does not give float32, the only type that onnx-go computes", out.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("load model %s: %w", name, err)
	}
	threads := e.threads
	if opt.Threads > 0 {
		threads = opt.Threads
	}
	m, err := graph.Load(onnx, graph.Options{Threads: threads, Output: opt.Output})
	if err != nil {
		return nil, fmt.Errorf("load model %s: %w", name, err)
	}
	return &goModel{name, m}, nil
}

type goModel struct {
	name  string
	graph *graph.Model
}

func (m *goModel) Run(ctx context.Context, in, out Tensor) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := check(in, out); err != nil {
		return fmt.Errorf("run model %s: %w", m.name, err)
	}
	_, shape, err := m.graph.Run(ctx, in.Shape, in.Data, out.Data)
	if ctxErr := ctx.Err(); err != nil && ctxErr != nil {
		return ctxErr
	}
	if err == nil && shape != out.Shape {
		err = fmt.Errorf("the result has the shape %v, want %v", shape, out.Shape)
	}
	if err != nil {
		return fmt.Errorf("run model %s on %v: %w", m.name, in.Shape, err)
	}
	return nil
}

func (*goModel) Close() error { return nil }
