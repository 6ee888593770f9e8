package graph_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/onnx/graph"
)

// compute loads a model and runs it on a 1x1x2x2 picture of 1, -2, 3, -4.
func compute(t *testing.T, m *builder) []float32 {
	t.Helper()
	model, err := graph.Load(m.bytes(), graph.Options{})
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
		model *builder
		want  []float32
	}{
		// Many exporters list every value in value_info. onnx-go makes a second
		// node for it: the first Relu then reads an input that nobody sets.
		"input and output declared again in value_info": {
			newModel(13).input("x", 1, 1, 2, 2).value(13, "x", 1, 1, 2, 2).value(13, "h").value(13, "y").output("y").
				node("Relu", "x", "h").node("Relu", "h", "y"),
			[]float32{1, 0, 3, 0},
		},
		// The input of an operation without inputs is called after the node:
		// unnamed Constants have an input "/input", which was somebody's value.
		"a value called like the made-up input of an unnamed constant": {
			newModel(13).input("x", 1, 1, 2, 2).output("y").node("Relu", "x", "/input").
				rawNode("Constant", "", "c", "", attr{"value", raw("", 1, one, floatBytes(10))}.encode()).
				node("Add", "/input c", "y"),
			[]float32{11, 10, 13, 10},
		},
		// An empty tensor means "absent" for Resize; onnx-go refuses tensors
		// without data.
		"an empty initializer": {
			newModel(13).input("x").output("y").tensor(raw("roi", 1, []int{0}, nil)).
				floats("scales", []int{4}, 1, 1, 1, 2).node("Resize", "x roi scales", "y", attr{"coordinate_transformation_mode", "asymmetric"}),
			[]float32{1, 1, -2, -2, 3, 3, -4, -4},
		},
		"an empty constant": {
			newModel(13).input("x").output("y").node("Constant", "", "roi", attr{"value", raw("", 1, []int{0}, nil)}).
				floats("scales", []int{4}, 1, 1, 1, 2).node("Resize", "x roi scales", "y", attr{"coordinate_transformation_mode", "asymmetric"}),
			[]float32{1, 1, -2, -2, 3, 3, -4, -4},
		},
		// The graph package behind onnx-go's backends keeps one edge between
		// two values: Add(x, x) had one operand.
		"the same operand twice": {
			newModel(13).input("x").output("y").node("Add", "x x", "y"),
			[]float32{2, -4, 6, -8},
		},
		"a value that is computed in its own place": {
			newModel(13).input("x").output("y").node("Mul", "x x", "h").node("Sub", "h h", "z").node("Sub", "h z", "y"),
			[]float32{1, 4, 9, 16},
		},
		"half-precision weights": {
			newModel(13).input("x").output("y").tensor(raw("c", 10, one, []byte{0x00, 0xc1})). // -2.5
														node("Mul", "x c", "y"),
			[]float32{-2.5, 5, -7.5, 10},
		},
		"the smallest half-precision numbers": {
			newModel(13).input("x").output("y").tensor(raw("c", 10, one, []byte{0x01, 0x80})).floats("k", nil, 1<<24).
				node("Mul", "x c", "h").node("Mul", "h k", "y"),
			[]float32{-1, 2, -3, 4},
		},
		"brain-float weights": {
			newModel(13).input("x").output("y").tensor(raw("c", 16, one, []byte{0x40, 0x40})). // 3
														node("Mul", "x c", "y"),
			[]float32{3, -6, 9, -12},
		},
		"double-precision weights": {
			newModel(13).input("x").output("y").tensor(raw("c", 11, one, intBytes(int64(math.Float64bits(0.5))))).
				node("Mul", "x c", "y"),
			[]float32{0.5, -1, 1.5, -2},
		},
		// onnx-go reads eight bytes for each bool.
		"bool": {
			newModel(13).input("x").output("y").tensor(raw("c", 9, []int{4}, []byte{0, 1, 1, 0})).
				node("Cast", "c", "f", attr{"to", 1}).ints("shape", 1, 1, 2, 2).node("Reshape", "f shape", "g").node("Mul", "x g", "y"),
			[]float32{0, -2, 3, 0},
		},
		"32-bit integers in varints": {
			newModel(13).input("x").output("y").
				tensor(varint(varint(varint(text(varint(varint(nil, 1, 3), 2, 6), 8, "s"), 5, 1), 5, 4), 5, -1)).
				ints("back", 1, 1, 2, 2).node("Reshape", "x s", "h").node("Reshape", "h back", "y"),
			[]float32{1, -2, 3, -4},
		},
		"floats outside raw_data": {
			newModel(13).input("x").output("y").tensor(message(text(varint(varint(nil, 1, 1), 2, 1), 8, "c"), 4, floatBytes(7))).
				node("Add", "x c", "y"),
			[]float32{8, 5, 10, 3},
		},
		// Without a type, onnx-go hands over an empty struct for a value.
		"an attribute without a type": {
			newModel(13).input("x").output("y").rawNode("LeakyRelu", "x", "y", "", text(floatField(2, 0.5), 1, "alpha")),
			[]float32{1, -1, 3, -2},
		},
		// onnx-go allocates what is declared: here 4 exabytes.
		"a large declared shape of an inner value": {
			newModel(13).input("x").value(13, "h", 1<<30, 1<<30).output("y").node("Relu", "x", "h").node("Relu", "h", "y"),
			[]float32{1, 0, 3, 0},
		},
		// onnx-go made a second, orphaned value of it.
		"an output that is an input too": {
			newModel(13).input("x").output("y").output("x").node("Relu", "x", "y"),
			[]float32{1, 0, 3, 0},
		},
		"an initializer that is declared as an input": {
			newModel(13).input("x").input("c", 1).output("y").floats("c", one, 1).node("Add", "x c", "y"),
			[]float32{2, -1, 4, -3},
		},
		"outputs without a name": {
			newModel(13).input("x").output("y").node("Dropout", "x", "a -").node("Dropout", "a", "b -").node("Relu", "b", "y"),
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
	return append([]byte{byte(number<<3 | 5)}, floatBytes(v)...)
}

func TestLoad_says_what_is_wrong_with_a_model(t *testing.T) {
	t.Parallel()
	relu := func() *builder { return newModel(13).input("x").output("y").node("Relu", "x", "y") }
	foreign := newModel(1)
	foreign.domain = "com.example"
	for name, c := range map[string]struct {
		model []byte
		want  string
	}{
		"no model":                     {[]byte("no model at all"), ""},
		"nothing":                      {nil, "names no version"},
		"operators of others":          {foreign.input("x").output("y").node("Magic", "x", "y").bytes(), "names no version"},
		"an unknown operator":          {newModel(13).input("x").output("y").node("NonZero", "x", "y").bytes(), `operator NonZero (node "NonZero_y") is not supported`},
		"one without a name":           {newModel(13).input("x").output("y").rawNode("NonZero", "x", "y", "").bytes(), `operator NonZero (the node that computes "y") is not supported`},
		"one with several results":     {newModel(13).input("x").output("z").node("LSTM", "x", "y z").bytes(), `operator LSTM (node "LSTM_y") is not supported`},
		"one with a graph":             {newModel(13).input("x").output("y").rawNode("If", "x", "y", "if", varint(message(text(nil, 1, "then_branch"), 6, nil), 20, 5)).bytes(), `operator If (node "if") is not supported`},
		"an unsupported result":        {newModel(13).input("x").output("i").node("MaxPool", "x", "y i", attr{"kernel_shape", []int{1, 1}}).bytes(), `MaxPool (node "MaxPool_y"): output number 2`},
		"an attribute of a wrong type": {newModel(13).input("x").output("y").node("LeakyRelu", "x", "y", attr{"alpha", 1}).bytes(), "attribute alpha"},
		"a huge stride":                {newModel(13).input("x").output("y").conv("x", "y", 1, 1, 1, attr{"strides", []int{1 << 40, 1}}).bytes(), "attribute strides"},
		"a missing value":              {newModel(13).input("x").output("y").node("Add", "x z", "y").bytes(), `input "z" is computed nowhere`},
		"a value computed later":       {newModel(13).input("x").output("y").node("Relu", "h", "y").node("Relu", "x", "h").bytes(), `input "h" is computed nowhere before`},
		"a value computed of itself":   {newModel(13).input("x").output("y").node("Add", "x y", "y").bytes(), `input "y" is computed nowhere before`},
		"a value computed twice":       {relu().node("Relu", "x", "y").bytes(), `two values are called "y"`},
		"a missing output":             {relu().output("z").bytes(), `output "z"`},
		"no output":                    {newModel(13).input("x").node("Relu", "x", "y").bytes(), "no outputs"},
		"data that do not fill":        {relu().floats("c", []int{5}, 1, 2).bytes(), `tensor "c": shape [5] with 8 bytes`},
		"a negative side":              {relu().floats("c", []int{-1}, 1).bytes(), `tensor "c"`},
		"a side beyond measure":        {relu().floats("c", []int{1 << 40, 1 << 40}, 1).bytes(), `tensor "c"`},
		"data in another file":         {relu().tensor(message(raw("c", 1, []int{1}, nil), 13, nil)).bytes(), "external data"},
		"strings":                      {relu().tensor(raw("c", 8, []int{1}, []byte("x"))).bytes(), `tensor "c": elements of type 8`},
		"weights that do not fit":      {newModel(13).input("x").output("y").floats("w", []int{2, 2}, 1, 2, 3, 4).node("Conv", "x w", "y").bytes(), "weights of shape [2 2]"},
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
	m := newModel(13).input("x").output("a").output("b").node("Relu", "x", "a").node("Neg", "x", "b").bytes()
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
