package render_test

import (
	"context"
	"testing"

	"pictor/internal/onnx"
	"pictor/internal/render"
)

// blind is an engine whose models load and run, and answer the same value
// everywhere.
type blind struct {
	onnx.Engine
	value float32
}

type blindModel struct {
	onnx.Model
	value float32
}

func (e blind) Load(name string, file []byte, opt onnx.Options) (onnx.Model, error) {
	m, err := e.Engine.Load(name, file, opt)
	return blindModel{m, e.value}, err
}

func (m blindModel) Run(_ context.Context, _, out onnx.Tensor) error {
	for i := range out.Data {
		out.Data[i] = m.value
	}
	return nil
}

func checked(t *testing.T, e onnx.Engine) error {
	t.Helper()
	r, err := render.New(render.Config{Engine: e, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	return r.Check(t.Context())
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, name := range []string{onnx.Runtime, onnx.Go} {
		e, err := onnx.Open(onnx.Config{Engine: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		t.Run("passes on "+name, func(t *testing.T) {
			t.Parallel()
			if err := checked(t, e); err != nil {
				t.Error(err)
			}
		})
		t.Run("notices models that see nothing on "+name, func(t *testing.T) {
			t.Parallel()
			for _, value := range []float32{0, 1} {
				if err := checked(t, blind{e, value}); err == nil {
					t.Errorf("models that answer %v everywhere pass", value)
				}
			}
		})
	}
}
