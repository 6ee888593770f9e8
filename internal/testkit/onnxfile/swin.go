package onnxfile

import (
	"fmt"
	"math"
)

// BiRefNet is a model file with the interface and the operators of the BiRefNet
// exports: a Swin transformer of two stages with whole and shifted windows, a
// decoder with a deformed convolution, decomposed as exporters do it, and
// logits for an answer. It has few channels and blocks.
func BiRefNet(side int) []byte {
	m := &swin{File: New(17), side: side}
	m.Input("input_image", 1, 3, side, side)
	fine, coarse := m.encode("input_image")
	m.decode(fine, coarse, "output_image")
	return m.Output("output_image", 1, 1, side, side).Bytes()
}

// BEN2 is the same with the interface of BEN2_Base.onnx: older operators, the
// sigmoid inside, and an answer of half precision.
func BEN2(side int) []byte {
	m := &swin{File: New(15), side: side, old: true}
	m.Input("input.1", 1, 3, side, side)
	fine, coarse := m.encode("input.1")
	m.decode(fine, coarse, "logits")
	m.Node("Sigmoid", "logits", "alpha").Node("Cast", "alpha", "17728", Attr("to", Float16))
	return m.HalfOutput("17728", 1, 1, side, side).Bytes()
}

const (
	window    = 8
	heads     = 2
	swinWidth = 8 // channels of the first stage
)

type swin struct {
	*File
	side int
	old  bool // without LayerNormalization, which operator set 17 brought
}

func (m *swin) reshape(in, out string, shape ...int64) *File {
	return m.Ints(out+".shape", shape...).Node("Reshape", in+" "+out+".shape", out)
}

func (m *swin) linear(in, out string, from, to int) *File {
	return m.Noise(out+".w", 0, float32(math.Sqrt(3/float64(from))), from, to).Noise(out+".b", 0, 0.1, to).
		Node("MatMul", in+" "+out+".w", out+".m").Node("Add", out+".m "+out+".b", out)
}

func (m *swin) norm(in, out string, channels int) {
	m.Noise(out+".g", 1, 0.2, channels).Noise(out+".be", 0, 0.2, channels)
	if !m.old {
		m.Node("LayerNormalization", in+" "+out+".g "+out+".be", out, Attr("axis", -1), Attr("epsilon", float32(1e-5)))
		return
	}
	last := Attr("axes", []int{-1})
	m.Node("ReduceMean", in, out+".mean", last).Node("Sub", in+" "+out+".mean", out+".d")
	m.Floats(out+".2", nil, 2).Floats(out+".e", nil, 1e-5)
	m.Node("Pow", out+".d "+out+".2", out+".dd").Node("ReduceMean", out+".dd", out+".v", last)
	m.Node("Add", out+".v "+out+".e", out+".ve").Node("Sqrt", out+".ve", out+".s").Node("Div", out+".d "+out+".s", out+".n")
	m.Node("Mul", out+".n "+out+".g", out+".ng").Node("Add", out+".ng "+out+".be", out)
}

// encode gives the features of both stages, rows of channels last.
func (m *swin) encode(in string) (fine, coarse string) {
	n := m.side / 4
	m.Conv(in, "patches", 3, swinWidth, 4, pads(0), Attr("strides", []int{4, 4}))
	m.Node("Transpose", "patches", "tokens", Attr("perm", []int{0, 2, 3, 1}))
	m.block("tokens", "s1a", n, swinWidth, 0)
	m.block("s1a", "s1b", n, swinWidth, window/2)
	m.merge("s1b", "merged", n, swinWidth)
	m.block("merged", "s2", n/2, 2*swinWidth, 0)
	return "s1b", "s2"
}

// roll moves rows and columns by a shift around the edges.
func (m *swin) roll(in, out string, shift int) string {
	for axis := 1; axis <= 2; axis++ {
		name := fmt.Sprint(out, ".roll", axis)
		m.Ints(name+".0", 0).Ints(name+".k", int64(shift)).Ints(name+".end", math.MaxInt64).Ints(name+".axis", int64(axis))
		m.Node("Slice", fmt.Sprintf("%s %[2]s.k %[2]s.end %[2]s.axis", in, name), name+".tail")
		m.Node("Slice", fmt.Sprintf("%s %[2]s.0 %[2]s.k %[2]s.axis", in, name), name+".head")
		m.Node("Concat", name+".tail "+name+".head", name, Attr("axis", axis))
		in = name
	}
	return in
}

// block is windowed attention and a perceptron, both with a residual.
func (m *swin) block(in, out string, n, channels, shift int) {
	m.norm(in, out+".ln", channels)
	x := out + ".ln"
	if shift > 0 {
		x = m.roll(x, out, shift)
	}
	k, c, w := int64(n/window), int64(channels), int64(window)
	windows := Attr("perm", []int{0, 1, 3, 2, 4, 5})
	m.reshape(x, out+".p6", 1, k, w, k, w, c).Node("Transpose", out+".p6", out+".p", windows)
	m.reshape(out+".p", out+".win", -1, w*w, c)
	m.attention(out+".win", out+".att", channels)
	m.reshape(out+".att", out+".r6", 1, k, k, w, w, c).Node("Transpose", out+".r6", out+".r", windows)
	m.reshape(out+".r", out+".back", 1, int64(n), int64(n), c)
	x = out + ".back"
	if shift > 0 {
		x = m.roll(x, out+".un", -shift)
	}
	m.Node("Add", x+" "+in, out+".sum")
	m.norm(out+".sum", out+".ln2", channels)
	m.linear(out+".ln2", out+".up", channels, 2*channels)
	m.gelu(out+".up", out+".act")
	m.linear(out+".act", out+".down", 2*channels, channels)
	m.Node("Add", out+".down "+out+".sum", out)
}

func (m *swin) gelu(in, out string) {
	m.Floats(out+".root", nil, math.Sqrt2).Floats(out+".one", nil, 1).Floats(out+".half", nil, 0.5)
	m.Node("Div", in+" "+out+".root", out+".d").Node("Erf", out+".d", out+".erf").Node("Add", out+".erf "+out+".one", out+".p")
	m.Node("Mul", in+" "+out+".p", out+".m").Node("Mul", out+".m "+out+".half", out)
}

func (m *swin) attention(in, out string, channels int) {
	tokens, each := int64(window*window), int64(channels/heads)
	m.linear(in, out+".qkv", channels, 3*channels)
	m.reshape(out+".qkv", out+".qkv5", -1, tokens, 3, heads, each)
	m.Node("Transpose", out+".qkv5", out+".parts", Attr("perm", []int{2, 0, 3, 1, 4}))
	for i, part := range []string{"q", "k", "v"} {
		name := out + "." + part
		m.Tensor(Raw(name+".at", Int64, nil, IntBytes(int64(i)))).Node("Gather", out+".parts "+name+".at", name, Attr("axis", 0))
	}
	m.Floats(out+".scale", nil, float32(1/math.Sqrt(float64(each))))
	m.Node("Mul", out+".q "+out+".scale", out+".qs").Node("Transpose", out+".k", out+".kt", Attr("perm", []int{0, 1, 3, 2}))
	m.Node("MatMul", out+".qs "+out+".kt", out+".scores")
	m.bias(out)
	m.Node("Add", out+".scores "+out+".bias", out+".biased").Node("Softmax", out+".biased", out+".weights", Attr("axis", -1))
	m.Node("MatMul", out+".weights "+out+".v", out+".heads").Node("Transpose", out+".heads", out+".heads.t", Attr("perm", []int{0, 2, 1, 3}))
	m.reshape(out+".heads.t", out+".rows", -1, tokens, int64(channels))
	m.linear(out+".rows", out, channels, channels)
}

// bias looks the relative position of two tokens up in a table.
func (m *swin) bias(out string) {
	const reach = 2*window - 1
	var index []int64
	for a := range window * window {
		for b := range window * window {
			dy, dx := a/window-b/window+window-1, a%window-b%window+window-1
			index = append(index, int64(dy*reach+dx))
		}
	}
	m.Noise(out+".table", 0, 0.5, reach*reach, heads).Ints(out+".index", index...)
	m.Node("Gather", out+".table "+out+".index", out+".looked", Attr("axis", 0))
	m.reshape(out+".looked", out+".looked3", window*window, window*window, heads)
	m.Node("Transpose", out+".looked3", out+".bias3", Attr("perm", []int{2, 0, 1}))
	m.Ints(out+".axes", 0).Node("Unsqueeze", out+".bias3 "+out+".axes", out+".bias")
}

// merge makes one token of four.
func (m *swin) merge(in, out string, n, channels int) {
	m.Ints("m.end", math.MaxInt64, math.MaxInt64).Ints("m.axes", 1, 2).Ints("m.steps", 2, 2)
	all := ""
	for i := range int64(4) {
		name := fmt.Sprint(out, i)
		m.Ints(name+".from", i%2, i/2).Node("Slice", in+" "+name+".from m.end m.axes m.steps", name)
		all += name + " "
	}
	m.Node("Concat", all, out+".cat", Attr("axis", -1))
	m.norm(out+".cat", out+".ln", 4*channels)
	m.linear(out+".ln", out, 4*channels, 2*channels)
}

// decode makes a map of logits of the picture's size.
func (m *swin) decode(fine, coarse, out string) {
	n := m.side / 4
	m.Node("Transpose", coarse, "c.chw", Attr("perm", []int{0, 3, 1, 2})).Node("Transpose", fine, "f.chw", Attr("perm", []int{0, 3, 1, 2}))
	m.deform("c.chw", "c.deformed", n/2, 2*swinWidth)
	m.Ints("d.size", 1, 2*swinWidth, int64(n), int64(n))
	m.Node("Resize", "c.deformed - - d.size", "c.up", Attr("mode", "linear"), Attr("coordinate_transformation_mode", "align_corners"))
	m.Node("Concat", "c.up f.chw", "d.in", Attr("axis", 1)).Conv("d.in", "d.conv", 3*swinWidth, swinWidth, 3).Node("Relu", "d.conv", "d.relu")
	m.Noise(out+".w", 0, 2, 1, swinWidth, 1, 1).Floats(out+".b", []int{1}, -1)
	m.Node("Conv", "d.relu "+out+".w "+out+".b", out+".small")
	m.Ints(out+".size", 1, 1, int64(m.side), int64(m.side))
	m.Node("Resize", out+".small - - "+out+".size", out, Attr("mode", "linear"), Attr("coordinate_transformation_mode", "align_corners"))
}

// deform is a convolution that looks at other places than its own: places are
// computed, rounded, clipped and gathered.
func (m *swin) deform(in, out string, n, channels int) {
	var grid []int64
	for y := range int64(n) {
		for x := range int64(n) {
			grid = append(grid, y, x)
		}
	}
	m.Conv(in, out+".offset", channels, 2, 3)
	m.Floats(out+".reach", nil, 6).Node("Mul", out+".offset "+out+".reach", out+".far").Node("Floor", out+".far", out+".floor")
	m.Node("Transpose", out+".floor", out+".hw", Attr("perm", []int{0, 2, 3, 1})).Node("Cast", out+".hw", out+".int", Attr("to", Int64))
	m.Tensor(Raw(out+".grid", Int64, []int{1, n, n, 2}, IntBytes(grid...))).Node("Add", out+".int "+out+".grid", out+".at")
	m.Tensor(Raw(out+".least", Int64, nil, IntBytes(0))).Tensor(Raw(out+".most", Int64, nil, IntBytes(int64(n-1))))
	m.Node("Clip", out+".at "+out+".least "+out+".most", out+".index")
	m.Node("Transpose", in, out+".hwc", Attr("perm", []int{0, 2, 3, 1}))
	m.Node("GatherND", out+".hwc "+out+".index", out+".gathered", Attr("batch_dims", 1))
	m.Node("Transpose", out+".gathered", out+".chw", Attr("perm", []int{0, 3, 1, 2}))
	// Exporters write results in place: here the first channel, negated.
	m.Node("Neg", out+".chw", out+".neg").Tensor(Raw(out+".first", Int64, []int{1, 2}, IntBytes(0, 0)))
	m.Ints(out+".0", 0, 0).Ints(out+".1", 1, 1).Ints(out+".01", 0, 1)
	m.Node("Slice", out+".neg "+out+".0 "+out+".1 "+out+".01", out+".slice")
	m.reshape(out+".slice", out+".plane", 1, int64(n), int64(n))
	m.Node("ScatterND", out+".chw "+out+".first "+out+".plane", out+".put")
	m.Conv(out+".put", out, channels, channels, 1)
}
