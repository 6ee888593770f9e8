package onnxfile

import "fmt"

// RRDB is a model file with the structure of Real-ESRGAN's RRDBNet: residual
// blocks of dense blocks, and two nearest enlargements. A scale of 2 begins
// with a pixel-unshuffle, exported as the reshaping that PyTorch makes of it,
// so that both sides of the input must be even.
func RRDB(scale, features, blocks int) []byte {
	m := New(17).Input("input", 1, 3, -1, -1).Output("output", 1, 3, -1, -1)
	m.Floats("fifth", nil, 0.2)
	channels, x := 3, "input"
	if scale == 2 {
		x, channels = m.unshuffle(x), 12
	}
	m.Conv(x, "first", channels, features, 3)
	trunk := "first"
	for block := range blocks {
		in := trunk
		for dense := range 3 {
			trunk = m.dense(fmt.Sprintf("b%d.%d", block, dense), trunk, features)
		}
		trunk = m.residual(fmt.Sprint("b", block), trunk, in)
	}
	m.Conv(trunk, "body", features, features, 3).Node("Add", "first body", "f0")
	m.Floats("scales", []int{4}, 1, 1, 2, 2)
	for i := range 2 {
		from, up, c, to := fmt.Sprint("f", i), fmt.Sprint("u", i), fmt.Sprint("uc", i), fmt.Sprint("f", i+1)
		m.Node("Resize", from+" - scales", up, Attr("mode", "nearest"), Attr("coordinate_transformation_mode", "asymmetric"), Attr("nearest_mode", "floor"))
		m.Conv(up, c, features, features, 3).Node("LeakyRelu", c, to, Attr("alpha", float32(0.2)))
	}
	m.Conv("f2", "hr", features, features, 3).Node("LeakyRelu", "hr", "hr.r", Attr("alpha", float32(0.2)))
	m.grey("hr.r", "output", features, 3)
	return m.Bytes()
}

// grey is a last convolution around the middle of 0..1.
func (m *File) grey(in, out string, from, to int) *File {
	m.Noise(out+".w", 0, 0.25, to, from, 3, 3).Noise(out+".b", 0.5, 0.1, to)
	return m.Node("Conv", in+" "+out+".w "+out+".b", out, pads(1))
}

// unshuffle makes four channels of half the size of each channel.
func (m *File) unshuffle(x string) string {
	m.Tensor(Raw("at2", Int64, nil, IntBytes(2))).Tensor(Raw("at3", Int64, nil, IntBytes(3)))
	m.Ints("one", 1).Ints("three", 3).Ints("two", 2).Ints("twelve", 12)
	m.Node("Shape", x, "s").Node("Gather", "s at2", "h0").Node("Gather", "s at3", "w0")
	for _, side := range []string{"h", "w"} {
		m.Node("Unsqueeze", side+"0 zero", side+"1").Node("Div", side+"1 two", side)
	}
	m.Ints("zero", 0)
	m.Node("Concat", "one three h two w two", "apart", Attr("axis", 0)).Node("Reshape", x+" apart", "x6")
	m.Node("Transpose", "x6", "x6t", Attr("perm", []int{0, 1, 3, 5, 2, 4}))
	m.Node("Concat", "one twelve h w", "together", Attr("axis", 0)).Node("Reshape", "x6t together", "unshuffled")
	return "unshuffled"
}

func (m *File) dense(name, in string, features int) string {
	grow := max(1, features/2)
	all, channels := in, features
	for i := 1; i < 5; i++ {
		c, f := fmt.Sprintf("%s.c%d", name, i), fmt.Sprintf("%s.f%d", name, i)
		m.Conv(all, c, channels, grow, 3).Node("LeakyRelu", c, f, Attr("alpha", float32(0.2)))
		m.Node("Concat", all+" "+f, f+".all", Attr("axis", 1))
		all, channels = f+".all", channels+grow
	}
	m.Conv(all, name+".c5", channels, features, 3)
	return m.residual(name, name+".c5", in)
}

func (m *File) residual(name, x, in string) string {
	m.Node("Mul", x+" fifth", name+".scaled").Node("Add", name+".scaled "+in, name+".out")
	return name + ".out"
}

// SRVGG is a model file with the structure of Real-ESRGAN's SRVGGNetCompact,
// four times: convolutions with PRelu, a pixel shuffle, and the picture itself
// enlarged by nearest.
func SRVGG(features, convolutions int) []byte {
	m := New(17).Input("input", 1, 3, -1, -1).Output("output", 1, 3, -1, -1)
	from, channels := "input", 3
	for i := range convolutions + 1 {
		c, p := fmt.Sprint("c", i), fmt.Sprint("p", i)
		m.Conv(from, c, channels, features, 3).Noise(p+".s", 0.2, 0.3, features, 1, 1).Node("PRelu", c+" "+p+".s", p)
		from, channels = p, features
	}
	m.Conv(from, "last", features, 48, 3).Node("DepthToSpace", "last", "up", Attr("blocksize", 4), Attr("mode", "CRD"))
	m.Floats("scales", []int{4}, 1, 1, 4, 4)
	m.Node("Resize", "input - scales", "base", Attr("mode", "nearest"), Attr("coordinate_transformation_mode", "asymmetric"), Attr("nearest_mode", "floor"))
	return m.Node("Add", "up base", "output").Bytes()
}
