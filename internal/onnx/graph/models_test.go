package graph_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"pictor/internal/onnx"
	"pictor/internal/onnx/graph"
	"pictor/internal/testkit/onnxfile"
)

// tolerance is how far the two engines may be apart: a third of the smallest
// step of an 8-bit pixel.
const tolerance = 1e-3

// shipped reads one of the models of internal/models.
func shipped(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "models", name+".onnx"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// reference computes a model's output with ONNX Runtime.
func reference(t fataler, model []byte, shape, outShape [4]int, in []float32) []float32 {
	t.Helper()
	engine, err := onnx.Open(onnx.Config{Engine: onnx.Runtime})
	if err != nil {
		t.Fatal(err) // a missing library fails the test: nothing would be compared
	}
	m, err := engine.Load("reference", model, onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	out := onnx.NewTensor(outShape[0], outShape[1], outShape[2], outShape[3])
	if err := m.Run(t.Context(), onnx.Tensor{Shape: shape, Data: in}, out); err != nil {
		t.Fatal(err)
	}
	return out.Data
}

// farthest is the largest difference, and where it is.
func farthest(want, got []float32) (float64, int) {
	worst, at := 0.0, -1
	for i, v := range want {
		if d := math.Abs(float64(v) - float64(got[i])); !(d <= worst) {
			worst, at = d, i
		}
	}
	return worst, at
}

// equalsRuntime compares a model's output with ONNX Runtime's, for each kernel,
// and with one and with several threads.
func equalsRuntime(t *testing.T, model []byte, shape [4]int, limit float64) {
	t.Helper()
	in := picture(shape[0], shape[1], shape[2], shape[3])
	var want []float32
	for i, kernel := range graph.Kernels() {
		for _, threads := range []int{1, 3} {
			if i > 0 && threads > 1 {
				continue // the kernel does not know of threads
			}
			m, err := graph.LoadWith(kernel, model, graph.Options{Threads: threads})
			if err != nil {
				t.Fatal(err)
			}
			got, outShape, err := m.Run(t.Context(), shape, in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = reference(t, model, shape, outShape, in)
			}
			if d, at := farthest(want, got); !(d <= limit) {
				t.Errorf("%s, %d threads, input %v: value %d is %v, ONNX Runtime's %v", kernel, threads, shape, at, got[at], want[at])
			}
		}
	}
}

func TestRun_equals_ONNX_Runtime_on_every_shipped_model(t *testing.T) {
	t.Parallel()
	sizes := map[string][][4]int{
		"remove-bg": {{1, 3, 256, 256}},
		// Odd sides, single rows, columns and pixels, several pictures at once,
		// a side shorter than the receptive field, one of no whole tile.
		"upscale-2x":      {{1, 3, 40, 64}, {1, 3, 1, 1}, {1, 3, 1, 70}, {1, 3, 67, 1}, {3, 3, 9, 33}, {1, 3, 21, 131}},
		"upscale-4x":      {{1, 3, 32, 48}, {1, 3, 1, 1}, {2, 3, 9, 35}, {1, 3, 17, 97}},
		"upscale-2x-fast": {{1, 3, 40, 64}, {1, 3, 1, 70}},
		"upscale-4x-fast": {{1, 3, 32, 48}, {2, 3, 9, 35}},
	}
	for name, shapes := range sizes {
		model := shipped(t, name)
		for _, shape := range shapes {
			t.Run(fmt.Sprint(name, shape), func(t *testing.T) {
				t.Parallel()
				equalsRuntime(t, model, shape, tolerance)
			})
		}
	}
}

// Foreign models of the catalogue are exported by many hands: these networks
// have the operators of U2-Net and IS-Net exports (sizes computed from shapes,
// ceil_mode, dilations), of SRVGG (PRelu, nearest) and RRDB (LeakyRelu, scaled
// residuals), with random weights.
func TestRun_equals_ONNX_Runtime_on_foreign_architectures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		model *onnxfile.File
		shape [4]int
	}{
		"U2-Net": {uNet(), [4]int{1, 3, 45, 37}},
		"SRVGG":  {srvgg(), [4]int{1, 3, 40, 52}},
		"RRDB":   {rrdb(), [4]int{1, 3, 24, 34}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			equalsRuntime(t, c.model.Bytes(), c.shape, 1e-4)
		})
	}
}

// uNet is one residual block of U2-Net with its way of enlarging to the size
// of another tensor.
func uNet() *onnxfile.File {
	m := onnxfile.New(11).Input("x", -1, 3, -1, -1).Output("y")
	normal := func(name string, channels int) {
		for _, p := range []string{"g", "v"} {
			m.Noise(name+p, 1, 0.3, channels)
		}
		m.Noise(name+"b", 0, 0.3, channels).Noise(name+"m", 0, 0.3, channels)
	}
	block := func(in, out string, from, to, dilation int) {
		pads := onnxfile.Attr("pads", []int{dilation, dilation, dilation, dilation})
		m.Conv(in, out+".c", from, to, 3, pads, onnxfile.Attr("dilations", []int{dilation, dilation}))
		normal(out, to)
		m.Node("BatchNormalization", fmt.Sprintf("%[1]s.c %[1]sg %[1]sb %[1]sm %[1]sv", out), out+".n", onnxfile.Attr("epsilon", float32(1e-5)))
		m.Node("Relu", out+".n", out)
	}
	pool := func(in, out string) {
		m.Node("MaxPool", in, out, onnxfile.Attr("kernel_shape", []int{2, 2}), onnxfile.Attr("strides", []int{2, 2}), onnxfile.Attr("ceil_mode", 1))
	}
	like := func(in, other, out string) { // interpolate(in, size=other.shape[2:])
		m.Node("Shape", other, out+".s").Node("Slice", out+".s two four zero", out+".hw")
		m.Node("Shape", in, out+".t").Node("Slice", out+".t zero two zero", out+".nc")
		m.Node("Concat", out+".nc "+out+".hw", out+".size", onnxfile.Attr("axis", 0))
		m.Node("Resize", in+" none none "+out+".size", out, onnxfile.Attr("mode", "linear"), onnxfile.Attr("coordinate_transformation_mode", "pytorch_half_pixel"))
	}
	m.Ints("zero", 0).Ints("two", 2).Ints("four", 4).Tensor(onnxfile.Raw("none", 1, []int{0}, nil))
	block("x", "a", 3, 12, 1)
	block("a", "b", 12, 8, 1)
	pool("b", "p")
	block("p", "c", 8, 8, 1)
	pool("c", "q")
	block("q", "d", 8, 8, 2)
	block("d", "e", 8, 8, 4)
	m.Node("Concat", "e d", "f", onnxfile.Attr("axis", 1))
	block("f", "g", 16, 8, 1)
	like("g", "c", "h")
	m.Node("Concat", "h c", "i", onnxfile.Attr("axis", -3))
	block("i", "j", 16, 8, 1)
	like("j", "b", "k")
	m.Node("Concat", "k b", "l", onnxfile.Attr("axis", 1))
	block("l", "o", 16, 12, 1)
	m.Node("Add", "o a", "r").Conv("r", "s", 12, 1, 3)
	return m.Node("Sigmoid", "s", "y")
}

func srvgg() *onnxfile.File {
	m := onnxfile.New(17).Input("x", -1, 3, -1, -1).Output("y")
	from := "x"
	for i, channels := 0, 3; i < 4; i, channels = i+1, 24 {
		c, p := fmt.Sprint("c", i), fmt.Sprint("p", i)
		m.Conv(from, c, channels, 24, 3).Noise(p+".s", 0.2, 0.3, 24, 1, 1).Node("PRelu", c+" "+p+".s", p)
		from = p
	}
	m.Conv(from, "last", 24, 48, 3).Node("DepthToSpace", "last", "up", onnxfile.Attr("blocksize", 4), onnxfile.Attr("mode", "CRD"))
	m.Floats("scales", []int{4}, 1, 1, 4, 4)
	m.Node("Resize", "x - scales", "base", onnxfile.Attr("mode", "nearest"), onnxfile.Attr("coordinate_transformation_mode", "asymmetric"), onnxfile.Attr("nearest_mode", "floor"))
	return m.Node("Add", "up base", "y")
}

func rrdb() *onnxfile.File {
	m := onnxfile.New(14).Input("x", -1, 3, -1, -1).Output("y").Floats("fifth", nil, 0.2)
	// x2 models begin with a pixel-unshuffle, which is exported as this.
	m.Node("SpaceToDepth", "x", "s", onnxfile.Attr("blocksize", 2)).Conv("s", "f0", 12, 16, 3)
	m.Node("Constant", "", "slope", onnxfile.Attr("value_float", float32(0.2)))
	all, channels := "f0", 16
	for i := 1; i < 4; i++ {
		c, f := fmt.Sprint("c", i), fmt.Sprint("f", i)
		m.Conv(all, c, channels, 8, 3).Node("LeakyRelu", c, f, onnxfile.Attr("alpha", float32(0.2)))
		m.Node("Concat", all+" "+f, f+".all", onnxfile.Attr("axis", 1))
		all, channels = f+".all", channels+8
	}
	m.Conv(all, "c5", channels, 16, 3).Node("Mul", "c5 fifth", "scaled").Node("Add", "scaled f0", "sum")
	m.Floats("scales", []int{4}, 1, 1, 2, 2)
	m.Node("Resize", "sum - scales", "u", onnxfile.Attr("mode", "nearest"), onnxfile.Attr("coordinate_transformation_mode", "asymmetric"), onnxfile.Attr("nearest_mode", "floor"))
	m.Conv("u", "c6", 16, 16, 3).Node("LeakyRelu", "c6", "f6", onnxfile.Attr("alpha", float32(0.2)))
	return m.Conv("f6", "y", 16, 3, 3)
}

// fataler is a test, of testing or of rapid.
type fataler interface {
	Fatalf(format string, args ...any)
	Helper()
	Context() context.Context
	Fatal(...any)
}
