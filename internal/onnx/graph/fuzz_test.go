package graph_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"pictor/internal/onnx/graph"
	"pictor/internal/testkit/onnxfile"
)

// survives loads and runs a model that may be broken in any way. A panic that
// was caught is a failure too: it is a check that is missing.
func survives(t *testing.T, model []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, _ = graph.Trim(model)
	m, err := graph.Load(model, graph.Options{Threads: 2, MaxBytes: 16 << 20})
	if err == nil {
		_, _, err = m.Run(ctx, [4]int{1, 3, 8, 12}, picture(1, 3, 8, 12), nil)
	}
	if err != nil && strings.Contains(err.Error(), "malformed model") {
		t.Fatalf("a panic: %v", err)
	}
}

// seeds are small models with every kind of operator.
func seeds() [][]byte {
	shapes := onnxfile.New(13).Input("x", -1, 3, -1, -1).Output("y").
		Node("Shape", "x", "s").Ints("two", 2).Ints("four", 4).Ints("one", 1).Node("Slice", "s two four", "hw").
		Node("Gather", "s one", "c").Node("Cast", "hw", "f", onnxfile.Attr("to", 1)).Node("Floor", "f", "g").Node("Cast", "g", "i", onnxfile.Attr("to", 7)).
		Node("Unsqueeze", "c one", "u", onnxfile.Attr("axes", []int{0})).Node("Squeeze", "u", "q").
		Node("ConstantOfShape", "hw", "z", onnxfile.Attr("value", onnxfile.Raw("", 1, []int{1}, onnxfile.FloatBytes(2)))).Node("Expand", "z hw", "e").
		Node("Mul", "x e", "m").Node("Split", "m", "k l n", onnxfile.Attr("axis", 1)).Node("Concat", "l n k", "o", onnxfile.Attr("axis", -3)).
		Ints("pads", 0, 0, 1, 2, 0, 0, 0, 1).Node("Pad", "o pads", "p", onnxfile.Attr("mode", "reflect")).
		Node("Transpose", "p", "t", onnxfile.Attr("perm", []int{0, 1, 3, 2})).Node("Flatten", "t", "h").
		Ints("back", 1, 3, -1, 9).Node("Reshape", "h back", "y")
	pools := onnxfile.New(11).Input("x").Output("y").Conv("x", "a", 3, 4, 3, onnxfile.Attr("strides", []int{2, 1})).
		Node("AveragePool", "a", "b", onnxfile.Attr("kernel_shape", []int{2, 3}), onnxfile.Attr("auto_pad", "SAME_UPPER")).
		Noise("w", 0, 1, 4, 3, 2, 2).Node("ConvTranspose", "b w", "c", onnxfile.Attr("strides", []int{2, 2}), onnxfile.Attr("output_padding", []int{1, 0})).
		Node("GlobalAveragePool", "c", "d").Node("Sub", "c d", "e").Node("Clip", "e", "f").Node("Tanh", "f", "y")
	return [][]byte{uNet().Bytes(), srvgg().Bytes(), rrdb().Bytes(), shapes.Bytes(), pools.Bytes()}
}

func TestLoad_takes_the_seeds(t *testing.T) {
	t.Parallel()
	for i, seed := range seeds() {
		if _, _, err := mustLoad(t, seed, graph.Options{}).Run(t.Context(), [4]int{1, 3, 8, 12}, picture(1, 3, 8, 12), nil); err != nil {
			t.Errorf("seed %d: %v", i, err)
		}
	}
}

func FuzzLoad(f *testing.F) {
	for _, seed := range seeds() {
		f.Add(seed)
	}
	f.Fuzz(survives)
}

// Some of what FuzzLoad does, at every run of the tests, with the memory
// measured. Not parallel: the measure is of the whole process.
func TestLoad_survives_corrupted_files(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, seed := range seeds() {
		for range 150 {
			b := append([]byte{}, seed...)
			for range 1 + random.IntN(4) {
				at := random.IntN(len(b))
				switch random.IntN(4) {
				case 0:
					b[at] ^= 1 << random.IntN(8)
				case 1:
					b[at] = byte(random.Uint32())
				case 2:
					b = b[:at+1]
				case 3:
					from := random.IntN(len(b))
					copy(b[at:], b[from:min(len(b), from+random.IntN(40))])
				}
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			survives(t, b)
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
				t.Fatalf("a file of %d bytes took %d MB", len(b), used>>20)
			}
		}
	}
}
