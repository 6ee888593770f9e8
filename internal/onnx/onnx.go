// Package onnx turns pixels into pixels through a model: it is the only
// package that knows ONNX engines.
//
// Two engines stand behind one interface. ONNX Runtime is the fast one, a
// shared library found at run time (see FindLibrary); onnx-go is the portable
// one, pure Go, in internal/onnx/graph. Both give the same results within
// 1e-3. Nothing here knows what a model is for: sizes, normalisation and tiles
// are internal/render's, files and checksums internal/models'.
package onnx

import (
	"context"
	"fmt"

	"pictor/internal/onnx/graph"
)

// Tensor is a block of float32 values in NCHW order: batch, channels, rows,
// columns. len(Data) is the product of Shape.
type Tensor struct {
	Shape [4]int
	Data  []float32
}

// NewTensor makes a tensor of zeros.
func NewTensor(n, c, h, w int) Tensor {
	return Tensor{Shape: [4]int{n, c, h, w}, Data: make([]float32, n*c*h*w)}
}

// Model is a loaded network with one input and one output.
type Model interface {
	// Run computes out from in. The caller allocates both; out.Shape must be
	// what the model gives for in.Shape. Run may be called from several
	// goroutines at once. After ctx is cancelled it returns early with ctx's
	// error, at the latest when the current layer is computed.
	Run(ctx context.Context, in, out Tensor) error
	// Close releases the model. No Run may be going on or follow.
	Close() error
}

// Engine loads models.
type Engine interface {
	// Name is the engine's name in PICTOR_ENGINE: onnxruntime, onnxruntime-cuda
	// or onnx-go.
	Name() string
	// Provider says what the models really run on: CPU or CUDA.
	Provider() string
	// Load reads a model out of the bytes of its .onnx file. The name is for
	// error messages only.
	Load(name string, onnx []byte, opt Options) (Model, error)
	// Close releases the engine. Its models must be closed before.
	Close() error
}

// Options are the choices that differ from model to model.
type Options struct {
	// MemoryPattern lets ONNX Runtime plan one block of memory for the inner
	// results of each input shape. It was no faster and took 1.3 to 1.6 times
	// the memory, for the mask model and for tiles alike.
	MemoryPattern bool
	// Output names the output to compute; empty for the first. Models of the
	// U2-Net family have several.
	Output string
	// Input is the shape that Run will be given, with 0 for sides that vary:
	// Load refuses a model that declares another. Zero is any shape.
	Input [4]int
	// Threads is how many threads one Run may use; 0 is Config.Threads.
	Threads int
}

// Names of engines, as PICTOR_ENGINE gives them.
const (
	Auto    = "auto"             // ONNX Runtime when its library is found, with CUDA when it offers it, else onnx-go
	Runtime = "onnxruntime"      // ONNX Runtime on the CPU
	CUDA    = "onnxruntime-cuda" // ONNX Runtime on an NVIDIA GPU; an error without one
	Go      = "onnx-go"          // pure Go
)

// Config chooses the engine.
type Config struct {
	Engine string // one of the names above; empty is Auto
	// Library is the path of ONNX Runtime's shared library; empty to look for
	// it with FindLibrary.
	Library string
	// Threads is the number of threads that one Run may use; 0 is 1, which is
	// best where several goroutines call Run at once.
	Threads int
}

// Open starts the chosen engine.
func Open(cfg Config) (Engine, error) {
	switch cfg.Engine {
	case "", Auto:
		return openBest(cfg)
	case Runtime:
		return openRuntime(cfg, false)
	case CUDA:
		return openRuntime(cfg, true)
	case Go:
		return openGo(cfg)
	default:
		return nil, fmt.Errorf("no engine is called %q: choose %s, %s, %s or %s", cfg.Engine, Auto, Runtime, CUDA, Go)
	}
}

// Trimmed is a model for tiles of a picture: see graph.Trimmed.
type Trimmed = graph.Trimmed

// Trim rewrites a model file that enlarges pictures for use on tiles, which have
// a margin that is thrown away: see graph.Trim. Other models are refused.
func Trim(file []byte) (Trimmed, error) { return graph.Trim(file) }

// check refuses tensors whose data do not fill their shape: an engine would
// read or write past them.
func check(in, out Tensor) error {
	for _, t := range []Tensor{in, out} {
		size := 1
		for _, d := range t.Shape {
			if d < 1 {
				return fmt.Errorf("tensor of shape %v is empty", t.Shape)
			}
			size *= d
		}
		if size != len(t.Data) {
			return fmt.Errorf("tensor of shape %v holds %d values", t.Shape, len(t.Data))
		}
	}
	return nil
}
