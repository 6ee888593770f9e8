package graph_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/onnx/graph"
	"pictor/internal/testkit/onnxfile"
)

// compute loads a model and runs it on a 1x1x2x2 picture of 1, -2, 3, -4.
func compute(t *testing.T, m *onnxfile.File) []float32 {
	t.Helper()
	model, err := graph.Load(m.Bytes(), graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := model.Run(t.Context(), [4]int{1, 1, 2, 2}, []float32{1, -2, 3, -4}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Each case is a model that onnx-go 0.5.0 decodes wrongly, or not at all, when
// it gets the file as it is.
func TestLoad_cures_what_onnx_go_misreads(t *testing.T) {
	t.Parallel()
	one := []int{1}
	for name, c := range map[string]struct {
		model *onnxfile.File
		want  []float32
	}{
		// Many exporters list every value in value_info. onnx-go makes a second
		// node for it: the first Relu then reads an input that nobody sets.
		"input and output declared again in value_info": {
			onnxfile.New(13).Input("x", 1, 1, 2, 2).Value(13, "x", 1, 1, 2, 2).Value(13, "h").Value(13, "y").Output("y").
				Node("Relu", "x", "h").Node("Relu", "h", "y"),
			[]float32{1, 0, 3, 0},
		},
		// The input of an operation without inputs is called after the node:
		// unnamed Constants have an input "/input", which was somebody's value.
		"a value called like the made-up input of an unnamed constant": {
			onnxfile.New(13).Input("x", 1, 1, 2, 2).Output("y").Node("Relu", "x", "/input").
				RawNode("Constant", "", "c", "", onnxfile.Attr("value", onnxfile.Raw("", 1, one, onnxfile.FloatBytes(10))).Encode()).
				Node("Add", "/input c", "y"),
			[]float32{11, 10, 13, 10},
		},
		// An empty tensor means "absent" for Resize; onnx-go refuses tensors
		// without data.
		"an empty initializer": {
			onnxfile.New(13).Input("x").Output("y").Tensor(onnxfile.Raw("roi", 1, []int{0}, nil)).
				Floats("scales", []int{4}, 1, 1, 1, 2).Node("Resize", "x roi scales", "y", onnxfile.Attr("coordinate_transformation_mode", "asymmetric")),
			[]float32{1, 1, -2, -2, 3, 3, -4, -4},
		},
		"an empty constant": {
			onnxfile.New(13).Input("x").Output("y").Node("Constant", "", "roi", onnxfile.Attr("value", onnxfile.Raw("", 1, []int{0}, nil))).
				Floats("scales", []int{4}, 1, 1, 1, 2).Node("Resize", "x roi scales", "y", onnxfile.Attr("coordinate_transformation_mode", "asymmetric")),
			[]float32{1, 1, -2, -2, 3, 3, -4, -4},
		},
		// The graph package behind onnx-go's backends keeps one edge between
		// two values: Add(x, x) had one operand.
		"the same operand twice": {
			onnxfile.New(13).Input("x").Output("y").Node("Add", "x x", "y"),
			[]float32{2, -4, 6, -8},
		},
		"a value that is computed in its own place": {
			onnxfile.New(13).Input("x").Output("y").Node("Mul", "x x", "h").Node("Sub", "h h", "z").Node("Sub", "h z", "y"),
			[]float32{1, 4, 9, 16},
		},
		"half-precision weights": {
			onnxfile.New(13).Input("x").Output("y").Tensor(onnxfile.Raw("c", 10, one, []byte{0x00, 0xc1})). // -2.5
															Node("Mul", "x c", "y"),
			[]float32{-2.5, 5, -7.5, 10},
		},
		"the smallest half-precision numbers": {
			onnxfile.New(13).Input("x").Output("y").Tensor(onnxfile.Raw("c", 10, one, []byte{0x01, 0x80})).Floats("k", nil, 1<<24).
				Node("Mul", "x c", "h").Node("Mul", "h k", "y"),
			[]float32{-1, 2, -3, 4},
		},
		"brain-float weights": {
			onnxfile.New(13).Input("x").Output("y").Tensor(onnxfile.Raw("c", 16, one, []byte{0x40, 0x40})). // 3
															Node("Mul", "x c", "y"),
			[]float32{3, -6, 9, -12},
		},
		"double-precision weights": {
			onnxfile.New(13).Input("x").Output("y").Tensor(onnxfile.Raw("c", 11, one, onnxfile.IntBytes(int64(math.Float64bits(0.5))))).
				Node("Mul", "x c", "y"),
			[]float32{0.5, -1, 1.5, -2},
		},
		// onnx-go reads eight bytes for each bool.
		"bool": {
			onnxfile.New(13).Input("x").Output("y").Tensor(onnxfile.Raw("c", 9, []int{4}, []byte{0, 1, 1, 0})).
				Node("Cast", "c", "f", onnxfile.Attr("to", 1)).Ints("shape", 1, 1, 2, 2).Node("Reshape", "f shape", "g").Node("Mul", "x g", "y"),
			[]float32{0, -2, 3, 0},
		},
		"32-bit integers in varints": {
			onnxfile.New(13).Input("x").Output("y").
				Tensor(onnxfile.Varint(onnxfile.Varint(onnxfile.Varint(onnxfile.Text(onnxfile.Varint(onnxfile.Varint(nil, 1, 3), 2, 6), 8, "s"), 5, 1), 5, 4), 5, -1)).
				Ints("back", 1, 1, 2, 2).Node("Reshape", "x s", "h").Node("Reshape", "h back", "y"),
			[]float32{1, -2, 3, -4},
		},
		"floats outside raw_data": {
			onnxfile.New(13).Input("x").Output("y").Tensor(onnxfile.Message(onnxfile.Text(onnxfile.Varint(onnxfile.Varint(nil, 1, 1), 2, 1), 8, "c"), 4, onnxfile.FloatBytes(7))).
				Node("Add", "x c", "y"),
			[]float32{8, 5, 10, 3},
		},
		// Without a type, onnx-go hands over an empty struct for a value.
		"an attribute without a type": {
			onnxfile.New(13).Input("x").Output("y").RawNode("LeakyRelu", "x", "y", "", onnxfile.Text(floatField(2, 0.5), 1, "alpha")),
			[]float32{1, -1, 3, -2},
		},
		// onnx-go allocates what is declared: here 4 exabytes.
		"a large declared shape of an inner value": {
			onnxfile.New(13).Input("x").Value(13, "h", 1<<30, 1<<30).Output("y").Node("Relu", "x", "h").Node("Relu", "h", "y"),
			[]float32{1, 0, 3, 0},
		},
		// onnx-go made a second, orphaned value of it.
		"an output that is an input too": {
			onnxfile.New(13).Input("x").Output("y").Output("x").Node("Relu", "x", "y"),
			[]float32{1, 0, 3, 0},
		},
		"an initializer that is declared as an input": {
			onnxfile.New(13).Input("x").Input("c", 1).Output("y").Floats("c", one, 1).Node("Add", "x c", "y"),
			[]float32{2, -1, 4, -3},
		},
		"outputs without a name": {
			onnxfile.New(13).Input("x").Output("y").Node("Dropout", "x", "a -").Node("Dropout", "a", "b -").Node("Relu", "b", "y"),
			[]float32{1, 0, 3, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, compute(t, c.model)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func floatField(number int, v float32) []byte {
	return append([]byte{byte(number<<3 | 5)}, onnxfile.FloatBytes(v)...)
}

func TestLoad_says_what_is_wrong_with_a_model(t *testing.T) {
	t.Parallel()
	relu := func() *onnxfile.File { return onnxfile.New(13).Input("x").Output("y").Node("Relu", "x", "y") }
	foreign := onnxfile.New(1)
	foreign.Domain = "com.example"
	for name, c := range map[string]struct {
		model []byte
		want  string
	}{
		"no model":                     {[]byte("no model at all"), ""},
		"nothing":                      {nil, "names no version"},
		"operators of others":          {foreign.Input("x").Output("y").Node("Magic", "x", "y").Bytes(), "names no version"},
		"an unknown operator":          {onnxfile.New(13).Input("x").Output("y").Node("NonZero", "x", "y").Bytes(), `operator NonZero (node "NonZero_y") is not supported`},
		"one without a name":           {onnxfile.New(13).Input("x").Output("y").RawNode("NonZero", "x", "y", "").Bytes(), `operator NonZero (the node that computes "y") is not supported`},
		"one with several results":     {onnxfile.New(13).Input("x").Output("z").Node("LSTM", "x", "y z").Bytes(), `operator LSTM (node "LSTM_y") is not supported`},
		"one with a graph":             {onnxfile.New(13).Input("x").Output("y").RawNode("If", "x", "y", "if", onnxfile.Varint(onnxfile.Message(onnxfile.Text(nil, 1, "then_branch"), 6, nil), 20, 5)).Bytes(), `operator If (node "if") is not supported`},
		"an unsupported result":        {onnxfile.New(13).Input("x").Output("i").Node("MaxPool", "x", "y i", onnxfile.Attr("kernel_shape", []int{1, 1})).Bytes(), `MaxPool (node "MaxPool_y"): output number 2`},
		"an attribute of a wrong type": {onnxfile.New(13).Input("x").Output("y").Node("LeakyRelu", "x", "y", onnxfile.Attr("alpha", 1)).Bytes(), "attribute alpha"},
		"a huge stride":                {onnxfile.New(13).Input("x").Output("y").Conv("x", "y", 1, 1, 1, onnxfile.Attr("strides", []int{1 << 40, 1})).Bytes(), "attribute strides"},
		"a missing value":              {onnxfile.New(13).Input("x").Output("y").Node("Add", "x z", "y").Bytes(), `input "z" is computed nowhere`},
		"a value computed later":       {onnxfile.New(13).Input("x").Output("y").Node("Relu", "h", "y").Node("Relu", "x", "h").Bytes(), `input "h" is computed nowhere before`},
		"a value computed of itself":   {onnxfile.New(13).Input("x").Output("y").Node("Add", "x y", "y").Bytes(), `input "y" is computed nowhere before`},
		"a value computed twice":       {relu().Node("Relu", "x", "y").Bytes(), `two values are called "y"`},
		"a missing output":             {relu().Output("z").Bytes(), `output "z"`},
		"no output":                    {onnxfile.New(13).Input("x").Node("Relu", "x", "y").Bytes(), "no outputs"},
		"data that do not fill":        {relu().Floats("c", []int{5}, 1, 2).Bytes(), `tensor "c": shape [5] with 8 bytes`},
		"a negative side":              {relu().Floats("c", []int{-1}, 1).Bytes(), `tensor "c"`},
		"a side beyond measure":        {relu().Floats("c", []int{1 << 40, 1 << 40}, 1).Bytes(), `tensor "c"`},
		"data in another file":         {relu().Tensor(onnxfile.Message(onnxfile.Raw("c", 1, []int{1}, nil), 13, nil)).Bytes(), "external data"},
		"strings":                      {relu().Tensor(onnxfile.Raw("c", 8, []int{1}, []byte("x"))).Bytes(), `tensor "c": elements of type 8`},
		"weights that do not fit":      {onnxfile.New(13).Input("x").Output("y").Floats("w", []int{2, 2}, 1, 2, 3, 4).Node("Conv", "x w", "y").Bytes(), "weights of shape [2 2]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := graph.Load(c.model, graph.Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestLoad_finds_the_output_by_name(t *testing.T) {
	t.Parallel()
	m := onnxfile.New(13).Input("x").Output("a").Output("b").Node("Relu", "x", "a").Node("Neg", "x", "b").Bytes()
	for name, want := range map[string][]float32{"": {1, 0}, "a": {1, 0}, "b": {-1, 2}} {
		model, err := graph.Load(m, graph.Options{Output: name})
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := model.Run(t.Context(), [4]int{1, 1, 1, 2}, []float32{1, -2}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("output %q: %s", name, diff)
		}
		if len(model.Steps()) != 1 {
			t.Errorf("output %q: %q, want one step", name, model.Steps())
		}
	}
	if _, err := graph.Load(m, graph.Options{Output: "c"}); err == nil || !strings.Contains(err.Error(), `no output "c"`) {
		t.Errorf("got %v, want an error that names the output", err)
	}
}
