package graph_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"pictor/internal/onnx/graph"
)

// survives loads and runs a model that may be broken in any way. A panic that
// was caught is a failure too: it is a check that is missing.
func survives(t *testing.T, model []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
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
	shapes := newModel(13).input("x", -1, 3, -1, -1).output("y").
		node("Shape", "x", "s").ints("two", 2).ints("four", 4).ints("one", 1).node("Slice", "s two four", "hw").
		node("Gather", "s one", "c").node("Cast", "hw", "f", attr{"to", 1}).node("Floor", "f", "g").node("Cast", "g", "i", attr{"to", 7}).
		node("Unsqueeze", "c one", "u", attr{"axes", []int{0}}).node("Squeeze", "u", "q").
		node("ConstantOfShape", "hw", "z", attr{"value", raw("", 1, []int{1}, floatBytes(2))}).node("Expand", "z hw", "e").
		node("Mul", "x e", "m").node("Split", "m", "k l n", attr{"axis", 1}).node("Concat", "l n k", "o", attr{"axis", -3}).
		ints("pads", 0, 0, 1, 2, 0, 0, 0, 1).node("Pad", "o pads", "p", attr{"mode", "reflect"}).
		node("Transpose", "p", "t", attr{"perm", []int{0, 1, 3, 2}}).node("Flatten", "t", "h").
		ints("back", 1, 3, -1, 9).node("Reshape", "h back", "y")
	pools := newModel(11).input("x").output("y").conv("x", "a", 3, 4, 3, attr{"strides", []int{2, 1}}).
		node("AveragePool", "a", "b", attr{"kernel_shape", []int{2, 3}}, attr{"auto_pad", "SAME_UPPER"}).
		noise("w", 0, 1, 4, 3, 2, 2).node("ConvTranspose", "b w", "c", attr{"strides", []int{2, 2}}, attr{"output_padding", []int{1, 0}}).
		node("GlobalAveragePool", "c", "d").node("Sub", "c d", "e").node("Clip", "e", "f").node("Tanh", "f", "y")
	return [][]byte{uNet().bytes(), srvgg().bytes(), rrdb().bytes(), shapes.bytes(), pools.bytes()}
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
