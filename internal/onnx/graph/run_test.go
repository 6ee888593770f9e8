package graph_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/onnx/graph"
	"pictor/internal/testkit/onnxfile"
)

func mustLoad(t testing.TB, model []byte, opt graph.Options) *graph.Model {
	t.Helper()
	m, err := graph.Load(model, opt)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRun_gives_the_same_from_many_goroutines(t *testing.T) {
	t.Parallel()
	m := mustLoad(t, shipped(t, "upscale-2x"), graph.Options{Threads: 2})
	shapes := [][4]int{{1, 3, 24, 40}, {1, 3, 37, 21}, {2, 3, 16, 16}}
	var want [][]float32
	for _, s := range shapes {
		out, _, err := m.Run(t.Context(), s, picture(s[0], s[1], s[2], s[3]), nil)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, out)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for k := range 6 {
				at := (i + k) % len(shapes)
				s := shapes[at]
				out := make([]float32, len(want[at]))
				if _, _, err := m.Run(t.Context(), s, picture(s[0], s[1], s[2], s[3]), out); err != nil {
					t.Error(err)
				} else if !cmp.Equal(want[at], out) {
					t.Errorf("a concurrent run on %v gave other values", s)
				}
			}
		})
	}
	wg.Wait()
}

// Threads must not change the result: rows are computed by the same sums,
// whoever computes them.
func TestRun_gives_the_same_from_any_number_of_threads(t *testing.T) {
	t.Parallel()
	model, shape := shipped(t, "remove-bg"), [4]int{1, 3, 256, 256}
	in := picture(1, 3, 256, 256)
	var want []float32
	for _, threads := range []int{0, 2, 5} {
		got, _, err := mustLoad(t, model, graph.Options{Threads: threads}).Run(t.Context(), shape, in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = got
		}
		if !cmp.Equal(want, got) {
			t.Errorf("%d threads gave other values", threads)
		}
	}
}

func TestRun_writes_into_the_caller_s_memory_and_nowhere_else(t *testing.T) {
	t.Parallel()
	m := onnxfile.New(13).Input("x").Output("y").Node("Relu", "x", "h").Node("Neg", "h", "y").Bytes()
	model := mustLoad(t, m, graph.Options{})
	in, out := []float32{1, -2, 3}, make([]float32, 3)
	got, _, err := model.Run(t.Context(), [4]int{1, 1, 1, 3}, in, out)
	if err != nil {
		t.Fatal(err)
	}
	if &got[0] != &out[0] || !cmp.Equal(out, []float32{-1, 0, -3}) || !cmp.Equal(in, []float32{1, -2, 3}) {
		t.Errorf("in %v, out %v, result %v", in, out, got)
	}
	first, _, err := model.Run(t.Context(), [4]int{1, 1, 1, 2}, []float32{5, 6}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := model.Run(t.Context(), [4]int{1, 1, 1, 2}, []float32{7, 8}, nil); err != nil {
		t.Fatal(err)
	}
	if !cmp.Equal(first, []float32{-5, -6}) {
		t.Errorf("the next run changed the result to %v", first)
	}
}

// Sum(x, y, x) once wrote its first addition into the memory of x, which it
// then added a second time.
func TestRun_reads_an_input_again_after_its_last_use_began(t *testing.T) {
	t.Parallel()
	m := onnxfile.New(13).Input("x").Output("y").Node("Neg", "x", "a").Node("Relu", "x", "b").Node("Sum", "a b a b", "y").Bytes()
	got, _, err := mustLoad(t, m, graph.Options{}).Run(t.Context(), [4]int{1, 1, 1, 2}, []float32{3, -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]float32{0, 2}, got); diff != "" {
		t.Error(diff)
	}
}

func TestRun_refuses_inputs_that_do_not_fit(t *testing.T) {
	t.Parallel()
	fixed := mustLoad(t, shipped(t, "remove-bg"), graph.Options{})
	free := mustLoad(t, shipped(t, "upscale-2x"), graph.Options{})
	open := mustLoad(t, onnxfile.New(13).Input("x").Output("y").Conv("x", "y", 3, 2, 3).Bytes(), graph.Options{})
	two := mustLoad(t, onnxfile.New(13).Input("a").Input("b").Output("y").Node("Add", "a b", "y").Bytes(), graph.Options{})
	for name, c := range map[string]struct {
		model *graph.Model
		shape [4]int
		n     int
		want  string
	}{
		"another size than declared": {fixed, [4]int{1, 3, 320, 320}, 3 * 320 * 320, "the model takes [1 3 256 256]"},
		"too few values":             {free, [4]int{1, 3, 8, 8}, 7, "holds 7 values"},
		"another number of channels": {open, [4]int{1, 4, 8, 8}, 256, "an input of 4 channels for weights of 3"},
		"nothing":                    {free, [4]int{1, 3, 0, 8}, 0, "empty"},
		"a negative side":            {free, [4]int{1, 3, -1, -8}, 24, "input of shape"},
		"sides beyond measure":       {free, [4]int{1 << 31, 1 << 31, 1 << 31, 1 << 31}, 0, "input of shape"},
		"two inputs":                 {two, [4]int{1, 1, 1, 1}, 1, "2 inputs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := c.model.Run(t.Context(), c.shape, make([]float32, c.n), nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestRun_names_the_node_where_shapes_do_not_go_together(t *testing.T) {
	t.Parallel()
	m := onnxfile.New(13).Input("x").Output("y").Ints("shape", 7, 7).Node("Reshape", "x shape", "y").Bytes()
	_, _, err := mustLoad(t, m, graph.Options{}).Run(t.Context(), [4]int{1, 1, 2, 2}, make([]float32, 4), nil)
	if err == nil || !strings.Contains(err.Error(), `Reshape (node "Reshape_y"): shape [1 1 2 2] cannot become [7 7]`) {
		t.Errorf("got %v", err)
	}
}

func TestRun_refuses_to_take_more_memory_than_allowed(t *testing.T) {
	t.Parallel()
	huge := onnxfile.New(13).Input("x").Output("y").Floats("scales", []int{4}, 1, 1, 1e6, 1e6).Node("Resize", "x - scales", "y").Bytes()
	for name, m := range map[string]*graph.Model{
		"a picture too large for the limit": mustLoad(t, shipped(t, "upscale-2x"), graph.Options{MaxBytes: 1 << 20}),
		"a model that enlarges absurdly":    mustLoad(t, huge, graph.Options{}),
	} {
		_, _, err := m.Run(t.Context(), [4]int{1, 3, 64, 64}, make([]float32, 3*64*64), nil)
		if err == nil || !strings.Contains(err.Error(), "memory") {
			t.Errorf("%s: %v, want an error about memory", name, err)
		}
	}
}

// countedContext is cancelled when it has been asked a number of times.
type countedContext struct {
	context.Context
	left atomic.Int64
}

func (c *countedContext) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// A job whose fence is lost must not go on computing: the context is looked at
// before each operator and each strip of rows.
func TestRun_stops_soon_after_a_cancellation(t *testing.T) {
	t.Parallel()
	for _, threads := range []int{1, 3} {
		m := mustLoad(t, shipped(t, "upscale-2x"), graph.Options{Threads: threads})
		for _, looks := range []int64{0, 1, 2, 7, 20} {
			ctx := &countedContext{Context: t.Context()}
			ctx.left.Store(looks)
			_, _, err := m.Run(ctx, [4]int{1, 3, 96, 96}, make([]float32, 3*96*96), nil)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("after %d looks: %v", looks, err)
			}
		}
		// What a cancelled run leaves behind must not spoil the next one.
		if _, _, err := m.Run(t.Context(), [4]int{1, 3, 8, 8}, make([]float32, 3*64), nil); err != nil {
			t.Error(err)
		}
	}
}

// The inner results of a tile take 8 MB each; two at a time is what the
// network needs, and a second run none.
func TestRun_reuses_its_memory(t *testing.T) {
	m := mustLoad(t, shipped(t, "upscale-2x-fast"), graph.Options{MaxBytes: 24 << 20})
	in, out := picture(1, 3, 256, 256), make([]float32, 3*512*512)
	run := func() {
		if _, _, err := m.Run(t.Context(), [4]int{1, 3, 256, 256}, in, out); err != nil {
			t.Fatal(err)
		}
	}
	run()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
		t.Errorf("a second run allocated %d bytes", used)
	}
}

func TestLoad_makes_one_step_of_a_convolution_and_what_follows(t *testing.T) {
	t.Parallel()
	m := onnxfile.New(13).Input("x").Output("y").Conv("x", "c", 3, 4, 3)
	m.Noise("g", 1, 0.5, 4).Noise("b", 0, 0.5, 4).Noise("m", 0, 0.5, 4).Noise("v", 1, 0.5, 4)
	m.Node("BatchNormalization", "c g b m v", "n").Conv("x", "d", 3, 4, 5).Node("Add", "n d", "s").Node("Relu", "s", "y")
	model := mustLoad(t, m.Bytes(), graph.Options{})
	if got := len(model.Steps()); got != 2 {
		t.Errorf("%d steps, want 2: %q", got, model.Steps())
	}
	for name, want := range map[string]int{"upscale-2x": 15, "upscale-4x": 14, "upscale-2x-fast": 11, "upscale-4x-fast": 10} {
		if got := len(mustLoad(t, shipped(t, name), graph.Options{}).Steps()); got != want {
			t.Errorf("%s: %d steps, want %d", name, got, want)
		}
	}
}

// What follows a convolution must stay apart where somebody else reads what is
// between, or where the kernel cannot do it.
func TestRun_equals_ONNX_Runtime_where_fusing_is_not_possible(t *testing.T) {
	t.Parallel()
	base := func() *onnxfile.File {
		return onnxfile.New(13).Input("x", 1, 3, 9, 35).Output("y").Conv("x", "c", 3, 4, 3)
	}
	for name, m := range map[string]*onnxfile.File{
		"read twice":            base().Node("Relu", "c", "r").Node("Sub", "r c", "y"),
		"the output":            onnxfile.New(13).Input("x", 1, 3, 9, 35).Output("c").Conv("x", "c", 3, 4, 3).Node("Relu", "c", "r"),
		"added to itself":       base().Node("Add", "c c", "a").Node("Relu", "a", "y"),
		"a constant added":      base().Noise("k", 0, 1, 4, 1, 1).Node("Add", "k c", "a").Node("Relu", "a", "y"),
		"a smaller one added":   base().Node("GlobalAveragePool", "c", "g").Conv("g", "h", 4, 4, 1).Conv("x", "d", 3, 4, 1).Node("Add", "d h", "a").Node("LeakyRelu", "a", "y"),
		"a larger one added":    base().Node("GlobalAveragePool", "x", "g").Conv("g", "h", 3, 4, 1).Node("Add", "h c", "a").Node("Relu", "a", "y"),
		"a slope for each row":  base().Noise("s", 0.2, 0.2, 1, 9, 1).Node("PRelu", "c s", "y"),
		"an activation between": base().Node("Relu", "c", "r").Conv("x", "d", 3, 4, 1).Node("Add", "r d", "y"),
		// Its own input is added to a convolution: the sum once took the memory
		// of that input, whose other rows were still to be read.
		"its input added":       base().Conv("c", "d", 4, 4, 3).Node("Add", "d c", "a").Node("Relu", "a", "y"),
		"a clip":                base().Floats("lo", nil, -0.1).Floats("hi", nil, 0.4).Node("Clip", "c lo hi", "y"),
		"one channel per group": base().Noise("w", 0, 0.5, 4, 1, 3, 3).Node("Conv", "c w", "d", onnxfile.Attr("group", 4), onnxfile.Attr("pads", []int{1, 1, 1, 1})).Node("Add", "d c", "a").Node("Relu", "a", "y"),
		"transposed, normalised": base().Noise("w", 0, 0.3, 4, 3, 4, 4).Noise("g", 1, 0.5, 6).Noise("b", 0, 0.5, 6).Noise("m", 0, 0.5, 6).Noise("v", 1, 0.5, 6).
			Node("ConvTranspose", "c w", "t", onnxfile.Attr("strides", []int{2, 2}), onnxfile.Attr("group", 2)).Node("BatchNormalization", "t g b m v", "n").Node("LeakyRelu", "n", "y"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			equalsRuntime(t, m.Bytes(), [4]int{1, 3, 9, 35}, 1e-5)
		})
	}
}

func TestRun_pools_like_ONNX_Runtime(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"MaxPool", "AveragePool"} {
		for _, ceil := range []int{0, 1} {
			for _, side := range []int{7, 8, 9, 10} {
				// The sides are open: from fixed ones ONNX Runtime infers, for
				// ceil_mode, a last window that its operator then leaves out.
				m := onnxfile.New(11).Input("x", 1, 2, -1, -1).Output("y")
				attributes := []onnxfile.Attribute{onnxfile.Attr("kernel_shape", []int{3, 2}), onnxfile.Attr("strides", []int{2, 3}), onnxfile.Attr("pads", []int{1, 0, 1, 1}), onnxfile.Attr("ceil_mode", ceil)}
				if op == "AveragePool" {
					attributes = append(attributes, onnxfile.Attr("count_include_pad", side%2))
				}
				m.Node(op, "x", "y", attributes...)
				t.Run(fmt.Sprint(op, ceil, side), func(t *testing.T) {
					t.Parallel()
					equalsRuntime(t, m.Bytes(), [4]int{1, 2, side, side + 3}, 1e-6)
				})
			}
		}
	}
}
