package graph_test

import (
	"testing"

	"pictor/internal/onnx/graph"
	"pictor/internal/testkit/onnxfile"
)

// Both engines must take what Trim writes, and give what the model itself gives
// for places that its padding does not reach.
func TestTrim_changes_no_pixel_within_the_margin(t *testing.T) {
	t.Parallel()
	residual := onnxfile.New(13).Input("x").Output("y").Conv("x", "a", 3, 6, 3).Node("LeakyRelu", "a", "b").
		Conv("b", "c", 6, 6, 5).Node("Constant", "", "k", onnxfile.Attr("value_float", float32(0.2))).Node("Mul", "k c", "d").
		Node("Add", "d b", "e").Node("Concat", "b e", "f", onnxfile.Attr("axis", 1)).Conv("f", "y", 12, 3, 1)
	for name, c := range map[string]struct {
		model                []byte
		margin, scale, block int
	}{
		"upscale-2x":      {shipped(t, "upscale-2x"), 13, 2, 2},
		"upscale-4x":      {shipped(t, "upscale-4x"), 12, 4, 4},
		"upscale-2x-fast": {shipped(t, "upscale-2x-fast"), 9, 2, 2},
		"upscale-4x-fast": {shipped(t, "upscale-4x-fast"), 8, 4, 4},
		"SRVGG":           {srvgg().Bytes(), 5, 4, 1},
		"residual":        {residual.Bytes(), 3, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trimmed, err := graph.Trim(c.model)
			if err != nil || trimmed.Margin != c.margin || trimmed.Block != c.block {
				t.Fatalf("got a margin of %d, blocks of %d and %v, want %d and %d", trimmed.Margin, trimmed.Block, err, c.margin, c.block)
			}
			const h, w = 40, 52
			in := picture(1, 3, h, w)
			whole := reference(t, c.model, [4]int{1, 3, h, w}, [4]int{1, 3, h * c.scale, w * c.scale}, in)
			// The part that is left, in the order of Block.
			bands, oh, ow := 3*c.block*c.block, (h-2*c.margin)*c.scale/c.block, (w-2*c.margin)*c.scale/c.block
			var want []float32
			for i := range bands * oh * ow {
				band, y, x := i/(oh*ow), i/ow%oh, i%ow
				y = y*c.block + band/c.block%c.block + c.margin*c.scale
				x = x*c.block + band%c.block + c.margin*c.scale
				want = append(want, whole[(band/(c.block*c.block)*h*c.scale+y)*w*c.scale+x])
			}
			got := reference(t, trimmed.File, [4]int{1, 3, h, w}, [4]int{1, bands, oh, ow}, in)
			if d, at := farthest(want, got); !(d <= 1e-5) {
				t.Errorf("ONNX Runtime: value %d is %v away", at, d)
			}
			equalsRuntime(t, trimmed.File, [4]int{1, 3, h, w}, 1e-4)
		})
	}
}

func TestTrim_refuses_what_looks_at_more_than_a_place_and_its_neighbours(t *testing.T) {
	t.Parallel()
	plain := func(in string) *onnxfile.File { return onnxfile.New(13).Input("x").Output("y").Conv("x", in, 3, 3, 3) }
	for name, model := range map[string][]byte{
		"encoder and decoder": uNet().Bytes(),
		"pixel unshuffle":     rrdb().Bytes(),
		"mean of the picture": plain("a").Node("GlobalAveragePool", "a", "b").Node("Mul", "a b", "y").Bytes(),
		"linear resizing": plain("a").Floats("s", []int{4}, 1, 1, 2, 2).
			Node("Resize", "a - s", "y", onnxfile.Attr("mode", "linear")).Bytes(),
		"a picture of constants": plain("a").Noise("c", 0, 1, 1, 3, 8, 12).Node("Add", "a c", "y").Bytes(),
		"stride":                 onnxfile.New(13).Input("x").Output("y").Conv("x", "y", 3, 3, 3, onnxfile.Attr("strides", []int{2, 2})).Bytes(),
		"padding on one side":    onnxfile.New(13).Input("x").Output("y").Conv("x", "y", 3, 3, 3, onnxfile.Attr("pads", []int{2, 2, 0, 0})).Bytes(),
		"automatic padding": onnxfile.New(13).Input("x").Output("y").
			Conv("x", "y", 3, 3, 3, onnxfile.Attr("auto_pad", "SAME_UPPER")).Bytes(),
		"an old Slice":  onnxfile.New(9).Input("x").Output("y").Conv("x", "y", 3, 3, 3).Bytes(),
		"two outputs":   plain("y").Output("x").Bytes(),
		"other domains": func() []byte { m := plain("a"); m.Domain = "odd"; return m.Node("Relu", "a", "y").Bytes() }(),
		"no model":      []byte("no model"),
	} {
		if _, err := graph.Trim(model); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// What is written beside the nodes, such as the shapes of inner values, must not
// contradict the smaller values.
func TestTrim_drops_declared_shapes(t *testing.T) {
	t.Parallel()
	m := onnxfile.New(13).Input("x", 1, 3, 12, 12).Value(13, "a", 1, 4, 12, 12).Output("y", 1, 3, 12, 12).
		Conv("x", "a", 3, 4, 3).Conv("a", "y", 4, 3, 3)
	trimmed, err := graph.Trim(m.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	equalsRuntime(t, trimmed.File, [4]int{1, 3, 12, 12}, 1e-5)
	if _, err := graph.Trim(trimmed.File); err == nil {
		t.Error("a trimmed model was trimmed again")
	}
}
