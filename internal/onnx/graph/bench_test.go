package graph_test

import (
	"slices"
	"testing"
	"time"

	"pictor/internal/onnx"
	"pictor/internal/onnx/graph"
	"pictor/internal/testkit/cputime"
)

// BenchmarkRun runs each shipped model on a tile of 256 pixels in turn here
// and in ONNX Runtime, both on one thread, and reports the medians of their
// processor times and the ratio.
func BenchmarkRun(b *testing.B) {
	engine, err := onnx.Open(onnx.Config{Engine: onnx.Runtime})
	if err != nil {
		b.Fatal(err)
	}
	shape := [4]int{1, 3, 256, 256}
	in := picture(1, 3, 256, 256)
	for _, name := range []string{"upscale-2x", "upscale-4x", "remove-bg"} {
		runtime, err := engine.Load(name, shipped(b, name), onnx.Options{MemoryPattern: true})
		if err != nil {
			b.Fatal(err)
		}
		for _, kernel := range graph.Kernels() {
			b.Run(name+"/"+kernel, func(b *testing.B) {
				m, err := graph.LoadWith(kernel, shipped(b, name), graph.Options{})
				if err != nil {
					b.Fatal(err)
				}
				out, outShape, err := m.Run(b.Context(), shape, in, nil)
				if err != nil {
					b.Fatal(err)
				}
				var ours, theirs []time.Duration
				for b.Loop() {
					start := cputime.Used(b)
					if _, _, err := m.Run(b.Context(), shape, in, out); err != nil {
						b.Fatal(err)
					}
					middle := cputime.Used(b)
					if err := runtime.Run(b.Context(), onnx.Tensor{Shape: shape, Data: in}, onnx.Tensor{Shape: outShape, Data: out}); err != nil {
						b.Fatal(err)
					}
					ours, theirs = append(ours, middle-start), append(theirs, cputime.Used(b)-middle)
				}
				slices.Sort(ours)
				slices.Sort(theirs)
				x, y := ours[len(ours)/2], theirs[len(theirs)/2]
				b.ReportMetric(float64(x.Microseconds())/1000, "cpu-ms")
				b.ReportMetric(float64(y.Microseconds())/1000, "onnxruntime-cpu-ms")
				b.ReportMetric(float64(x)/float64(y), "ratio")
			})
		}
	}
}
