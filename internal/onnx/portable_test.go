package onnx_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pictor/internal/onnx"
)

func TestOpen_gives_the_same_results_from_both_engines(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile(filepath.Join("..", "models", "upscale-4x.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	in := noise(37, 50)
	var results []onnx.Tensor
	for _, name := range []string{onnx.Runtime, onnx.Go} {
		e, err := onnx.Open(onnx.Config{Engine: name})
		if err != nil {
			t.Fatal(err)
		}
		if e.Name() != name || e.Provider() != "CPU" {
			t.Errorf("engine %s says it is %s on %s", name, e.Name(), e.Provider())
		}
		m, err := e.Load("upscale-4x", file, onnx.Options{Output: "output"})
		if err != nil {
			t.Fatal(err)
		}
		out := onnx.NewTensor(1, 3, 148, 200)
		if err := m.Run(t.Context(), in, out); err != nil {
			t.Fatal(err)
		}
		results = append(results, out)
		if err := m.Run(t.Context(), in, onnx.NewTensor(1, 3, 100, 200)); err == nil {
			t.Errorf("%s: no error for an output of another shape", name)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	for i, want := range results[0].Data {
		if got := results[1].Data[i]; !(math.Abs(float64(got-want)) <= 1e-3) {
			t.Fatalf("value %d: %v, ONNX Runtime gives %v", i, got, want)
		}
	}
}

func TestLoad_names_the_model_that_onnx_go_cannot_run(t *testing.T) {
	t.Parallel()
	e, err := onnx.Open(onnx.Config{Engine: onnx.Go})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Load("broken", []byte("no model"), onnx.Options{}); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("got %v, want an error that names the model", err)
	}
}
