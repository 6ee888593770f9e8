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
		"upscale-2x": {{1, 3, 40, 64}, {1, 3, 1, 1}, {1, 3, 1, 70}, {1, 3, 67, 1}, {3, 3, 9, 33}, {1, 3, 21, 131}},
		"upscale-4x": {{1, 3, 32, 48}, {1, 3, 1, 1}, {2, 3, 9, 35}, {1, 3, 17, 97}},
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
		model *builder
		shape [4]int
	}{
		"U2-Net": {uNet(), [4]int{1, 3, 45, 37}},
		"SRVGG":  {srvgg(), [4]int{1, 3, 40, 52}},
		"RRDB":   {rrdb(), [4]int{1, 3, 24, 34}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			equalsRuntime(t, c.model.bytes(), c.shape, 1e-4)
		})
	}
}

// uNet is one residual block of U2-Net with its way of enlarging to the size
// of another tensor.
func uNet() *builder {
	m := newModel(11).input("x", -1, 3, -1, -1).output("y")
	normal := func(name string, channels int) {
		for _, p := range []string{"g", "v"} {
			m.noise(name+p, 1, 0.3, channels)
		}
		m.noise(name+"b", 0, 0.3, channels).noise(name+"m", 0, 0.3, channels)
	}
	block := func(in, out string, from, to, dilation int) {
		pads := attr{"pads", []int{dilation, dilation, dilation, dilation}}
		m.conv(in, out+".c", from, to, 3, pads, attr{"dilations", []int{dilation, dilation}})
		normal(out, to)
		m.node("BatchNormalization", fmt.Sprintf("%[1]s.c %[1]sg %[1]sb %[1]sm %[1]sv", out), out+".n", attr{"epsilon", float32(1e-5)})
		m.node("Relu", out+".n", out)
	}
	pool := func(in, out string) {
		m.node("MaxPool", in, out, attr{"kernel_shape", []int{2, 2}}, attr{"strides", []int{2, 2}}, attr{"ceil_mode", 1})
	}
	like := func(in, other, out string) { // interpolate(in, size=other.shape[2:])
		m.node("Shape", other, out+".s").node("Slice", out+".s two four zero", out+".hw")
		m.node("Shape", in, out+".t").node("Slice", out+".t zero two zero", out+".nc")
		m.node("Concat", out+".nc "+out+".hw", out+".size", attr{"axis", 0})
		m.node("Resize", in+" none none "+out+".size", out, attr{"mode", "linear"}, attr{"coordinate_transformation_mode", "pytorch_half_pixel"})
	}
	m.ints("zero", 0).ints("two", 2).ints("four", 4).tensor(raw("none", 1, []int{0}, nil))
	block("x", "a", 3, 12, 1)
	block("a", "b", 12, 8, 1)
	pool("b", "p")
	block("p", "c", 8, 8, 1)
	pool("c", "q")
	block("q", "d", 8, 8, 2)
	block("d", "e", 8, 8, 4)
	m.node("Concat", "e d", "f", attr{"axis", 1})
	block("f", "g", 16, 8, 1)
	like("g", "c", "h")
	m.node("Concat", "h c", "i", attr{"axis", -3})
	block("i", "j", 16, 8, 1)
	like("j", "b", "k")
	m.node("Concat", "k b", "l", attr{"axis", 1})
	block("l", "o", 16, 12, 1)
	m.node("Add", "o a", "r").conv("r", "s", 12, 1, 3)
	return m.node("Sigmoid", "s", "y")
}

func srvgg() *builder {
	m := newModel(17).input("x", -1, 3, -1, -1).output("y")
	from := "x"
	for i, channels := 0, 3; i < 4; i, channels = i+1, 24 {
		c, p := fmt.Sprint("c", i), fmt.Sprint("p", i)
		m.conv(from, c, channels, 24, 3).noise(p+".s", 0.2, 0.3, 24, 1, 1).node("PRelu", c+" "+p+".s", p)
		from = p
	}
	m.conv(from, "last", 24, 48, 3).node("DepthToSpace", "last", "up", attr{"blocksize", 4}, attr{"mode", "CRD"})
	m.floats("scales", []int{4}, 1, 1, 4, 4)
	m.node("Resize", "x - scales", "base", attr{"mode", "nearest"}, attr{"coordinate_transformation_mode", "asymmetric"}, attr{"nearest_mode", "floor"})
	return m.node("Add", "up base", "y")
}

func rrdb() *builder {
	m := newModel(14).input("x", -1, 3, -1, -1).output("y").floats("fifth", nil, 0.2)
	// x2 models begin with a pixel-unshuffle, which is exported as this.
	m.node("SpaceToDepth", "x", "s", attr{"blocksize", 2}).conv("s", "f0", 12, 16, 3)
	m.node("Constant", "", "slope", attr{"value_float", float32(0.2)})
	all, channels := "f0", 16
	for i := 1; i < 4; i++ {
		c, f := fmt.Sprint("c", i), fmt.Sprint("f", i)
		m.conv(all, c, channels, 8, 3).node("LeakyRelu", c, f, attr{"alpha", float32(0.2)})
		m.node("Concat", all+" "+f, f+".all", attr{"axis", 1})
		all, channels = f+".all", channels+8
	}
	m.conv(all, "c5", channels, 16, 3).node("Mul", "c5 fifth", "scaled").node("Add", "scaled f0", "sum")
	m.floats("scales", []int{4}, 1, 1, 2, 2)
	m.node("Resize", "sum - scales", "u", attr{"mode", "nearest"}, attr{"coordinate_transformation_mode", "asymmetric"}, attr{"nearest_mode", "floor"})
	m.conv("u", "c6", 16, 16, 3).node("LeakyRelu", "c6", "f6", attr{"alpha", float32(0.2)})
	return m.conv("f6", "y", 16, 3, 3)
}

// fataler is a test, of testing or of rapid.
type fataler interface {
	Fatalf(format string, args ...any)
	Helper()
	Context() context.Context
	Fatal(...any)
}
