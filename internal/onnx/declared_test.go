package onnx_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/onnx"
	"pictor/internal/testkit/onnxfile"
)

func TestLoad_refuses_a_model_that_cannot_be_used(t *testing.T) { eachEngine(t, refusesUseless) }

func refusesUseless(t *testing.T, engine string) {
	relu := func() *onnxfile.File { return onnxfile.New(13).Node("Relu", "x", "y") }
	any := [4]int{1, 3, 0, 0}
	for name, test := range map[string]struct {
		file *onnxfile.File
		opt  onnx.Options
		want string
	}{
		"of another size":      {relu().Input("x", 1, 3, 64, 64).Output("y"), onnx.Options{Input: [4]int{1, 3, 320, 320}}, "[1 3 64 64]: want [1 3 320 320]"},
		"of one size, not any": {relu().Input("x", 1, 3, 64, 64).Output("y"), onnx.Options{Input: any}, "want [1 3 0 0]"},
		"of grey pictures":     {relu().Input("x", 1, 1, -1, -1).Output("y"), onnx.Options{Input: any}, "[1 1 -1 -1]"},
		"of rows":              {relu().Input("x", 1, 3).Output("y"), onnx.Options{Input: any}, "[1 3]"},
		"without the output":   {relu().Input("x").Output("y"), onnx.Options{Output: "z"}, `no output "z"`},
		"with two inputs":      {relu().Input("x").Input("w").Output("y"), onnx.Options{}, "2 inputs"},
		"of half precision":    {relu().HalfInput("x").Output("y"), onnx.Options{}, "does not take float32"},
	} {
		_, err := open(t, engine).Load("foreign", test.file.Bytes(), test.opt)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "foreign") {
			t.Errorf("%s: got %v, want %q and the model's name", name, err, test.want)
		}
	}
}

func TestLoad_takes_a_model_of_open_sides(t *testing.T) { eachEngine(t, takesOpenSides) }

func takesOpenSides(t *testing.T, engine string) {
	for _, sides := range [][]int{{-1, 3, -1, -1}, {1, 3, -1, -1}, nil} {
		m, err := open(t, engine).Load("open", onnxfile.New(13).Input("x", sides...).Output("y").Node("Relu", "x", "y").Bytes(),
			onnx.Options{Input: [4]int{1, 3, 0, 0}})
		if err != nil {
			t.Errorf("%v: %v", sides, err)
			continue
		}
		m.Close()
	}
}

// BEN2 answers in half precision: read as whole floats, its mask is noise.
func TestRun_reads_an_output_of_half_precision(t *testing.T) {
	t.Parallel()
	file := onnxfile.New(13).Input("x", 1, 1, -1, -1).HalfOutput("y").Node("Cast", "x", "y", onnxfile.Attr("to", onnxfile.Float16)).Bytes()
	m, err := open(t, onnx.Runtime).Load("half", file, onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	values := []float32{0, 1, -1, 0.5, 0.333251953125, 65504, 0x1p-24, -0x1p-24, 3 * 0x1p-24, 0x1p-14, 1023 * 0x1p-24, float32(math.Inf(1)), float32(math.Inf(-1)), 1e-9, -2.5, 1e6}
	want := append([]float32{}, values...)
	want[13], want[15] = 0, float32(math.Inf(1)) // beyond its range
	out := onnx.NewTensor(1, 1, 4, 4)
	if err := m.Run(t.Context(), onnx.Tensor{Shape: [4]int{1, 1, 4, 4}, Data: values}, out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, out.Data); diff != "" {
		t.Error(diff)
	}
	if _, err := open(t, onnx.Go).Load("half", file, onnx.Options{}); err == nil || !strings.Contains(err.Error(), "float32") {
		t.Errorf("onnx-go: got %v", err)
	}
}
