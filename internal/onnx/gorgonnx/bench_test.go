package gorgonnx_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	onnx "github.com/owulveryck/onnx-go"
	"github.com/owulveryck/onnx-go/backend/x/gorgonnx"
	"gorgonia.org/tensor"

	"pictor/internal/onnx/graph"
	"pictor/internal/testkit/cputime"
	"pictor/internal/testkit/onnxfile"
)

const side, channels, layers = 128, 32, 7

// network is the body of an upscaler, of operators that both backends have:
// convolutions of 3x3 with Relu.
func network() []byte {
	m := onnxfile.New(11).Input("input", 1, 3, side, side).Output("output", 1, 12, side, side)
	from, in, kernel := "input", 3, onnxfile.Attr("kernel_shape", []int{3, 3}) // Gorgonia wants it said
	for i := range layers {
		name := "c" + strconv.Itoa(i)
		m.Conv(from, name, in, channels, 3, kernel).Node("Relu", name, name+".relu")
		from, in = name+".relu", channels
	}
	return m.Conv(from, "output", in, 12, 3, kernel).Bytes()
}

// BenchmarkRun runs one network on both of onnx-go's backends in turns and
// reports the medians of their processor times, and how many times as long
// Gorgonia's takes.
func BenchmarkRun(b *testing.B) {
	model := network()
	in := make([]float32, 3*side*side)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range in {
		in[i] = random.Float32()
	}
	ours, err := graph.Load(model, graph.Options{})
	if err != nil {
		b.Fatal(err)
	}
	backend := gorgonnx.NewGraph()
	theirs := onnx.NewModel(backend)
	if err := theirs.UnmarshalBinary(model); err != nil {
		b.Fatal(err)
	}
	runTheirs := func() []float32 {
		if err := theirs.SetInput(0, tensor.New(tensor.WithShape(1, 3, side, side), tensor.WithBacking(slices.Clone(in)))); err != nil {
			b.Fatal(err)
		}
		if err := backend.Run(); err != nil {
			b.Fatal(err)
		}
		out, err := theirs.GetOutputTensors()
		if err != nil {
			b.Fatal(err)
		}
		return out[0].Data().([]float32)
	}
	out, _, err := ours.Run(b.Context(), [4]int{1, 3, side, side}, in, nil)
	if err != nil {
		b.Fatal(err)
	}
	for i, v := range runTheirs() {
		if math.Abs(float64(v-out[i])) > 1e-3 {
			b.Fatalf("value %d is %g there and %g here", i, v, out[i])
		}
	}
	var here, there []time.Duration
	for b.Loop() {
		start := cputime.Used(b)
		if _, _, err := ours.Run(b.Context(), [4]int{1, 3, side, side}, in, out); err != nil {
			b.Fatal(err)
		}
		middle := cputime.Used(b)
		runTheirs()
		here, there = append(here, middle-start), append(there, cputime.Used(b)-middle)
	}
	slices.Sort(here)
	slices.Sort(there)
	x, y := here[len(here)/2], there[len(there)/2]
	b.ReportMetric(float64(x.Microseconds())/1000, "cpu-ms")
	b.ReportMetric(float64(y.Microseconds())/1000, "gorgonia-cpu-ms")
	b.ReportMetric(float64(y)/float64(x), "ratio")
}
