package onnxfile

import (
	"fmt"
	"math"
	"strings"
)

// U2Net is a model file with the structure of U2-Net (Qin et al. 2020) as
// rembg publishes it: a square input of fixed side, seven outputs of which the
// first counts, sizes computed from shapes, pooling that rounds up, dilations.
// Channels are those of u2netp divided by thin.
func U2Net(side, thin int) []byte {
	m := &saliency{File: New(11), mid: max(1, 16/thin), out: max(2, 64/thin)}
	m.Input("input.1", 1, 3, side, side)
	m.constants()
	return m.nested("input.1", "input.1", 7)
}

// ISNet is a model file with the structure of IS-Net (Qin et al. 2022): the
// input is halved first, and six outputs follow, the first of which counts.
func ISNet(side, thin int) []byte {
	m := &saliency{File: New(11), mid: max(1, 16/thin), out: max(2, 64/thin)}
	m.Input("input", 1, 3, side, side)
	m.constants()
	m.Conv("input", "half", 3, m.out, 3, pads(1), Attr("strides", []int{2, 2}))
	return m.nested("half", "input", 6)
}

// saliency is a U of U-shaped blocks.
type saliency struct {
	*File
	mid, out int
}

func (m *saliency) constants() {
	m.Ints("zero", 0).Ints("two", 2).Ints("four", 4).Tensor(Raw("none", Float32, []int{0}, nil))
}

// nested is the outer U on the features x, of which the first block's channels
// are 3 when x is the picture. Masks are as large as the value `like`.
func (m *saliency) nested(x, like string, outputs int) []byte {
	channels := m.out
	if x == like {
		channels = 3
	}
	names := make([]string, 7) // of the stages, from 1
	heights := []int{0, 7, 6, 5, 4, 0, 0}
	for stage := 1; stage <= 6; stage++ {
		names[stage] = fmt.Sprint("stage", stage)
		m.rsu(heights[stage], x, names[stage], channels)
		channels = m.out
		if stage < 6 {
			x = m.pool(names[stage])
		}
	}
	deep := names[6]
	sides := []string{m.side(6, deep, like)}
	for stage := 5; stage >= 1; stage-- {
		name := names[stage] + "d"
		m.Node("Concat", m.like(deep, names[stage])+" "+names[stage], name+".in", Attr("axis", 1))
		m.rsu(heights[stage], name+".in", name, 2*m.out)
		deep = name
		sides = append([]string{m.side(stage, deep, like)}, sides...)
	}
	masks := sides
	if outputs == 7 {
		m.Node("Concat", strings.Join(sides, " "), "sides", Attr("axis", 1))
		m.wide("sides", "fused", 6, 1)
		masks = append([]string{"fused"}, sides...)
	}
	for i, mask := range masks {
		name := fmt.Sprint("d", i)
		m.Node("Sigmoid", mask, name).Output(name)
	}
	return m.Bytes()
}

// side is a mask of a stage.
func (m *saliency) side(stage int, in, like string) string {
	name := fmt.Sprint("side", stage)
	m.wide(in, name, m.out, 3)
	return m.like(name, like)
}

// wide is a convolution to one channel whose values span more than the
// sigmoid's slope, as those of a trained network do.
func (m *saliency) wide(in, out string, from, side int) {
	reach := float32(6 * math.Sqrt(3/float64(from*side*side)))
	m.Noise(out+".w", 0, reach, 1, from, side, side).Noise(out+".b", -1, 0.2, 1)
	m.Node("Conv", in+" "+out+".w "+out+".b", out, pads(side/2))
}

// rsu is a residual U-block of a height; 0 is the one with dilations instead
// of pooling.
func (m *saliency) rsu(height int, in, out string, channels int) {
	m.rebn(in, out+".first", channels, m.out, 1)
	levels := height - 1
	if height == 0 {
		levels = 3
	}
	dilation := 1
	names, x := []string{""}, out+".first"
	for level := 1; level <= levels; level++ {
		names = append(names, fmt.Sprint(out, ".", level))
		from := m.mid
		if level == 1 {
			from = m.out
		}
		if height > 0 && level > 1 {
			x = m.pool(x)
		}
		m.rebn(x, names[level], from, m.mid, dilation)
		if height == 0 {
			dilation *= 2
		}
		x = names[level]
	}
	if height > 0 {
		dilation = 2
	}
	deep := out + ".deep"
	m.rebn(x, deep, m.mid, m.mid, dilation)
	for level := levels; level >= 1; level-- {
		name := fmt.Sprint(out, ".", level, "d")
		if height > 0 && level < levels {
			deep = m.like(deep, names[level])
		}
		to := m.mid
		if level == 1 {
			to = m.out
		}
		if height == 0 {
			dilation /= 2
		} else {
			dilation = 1
		}
		m.Node("Concat", deep+" "+names[level], name+".in", Attr("axis", 1))
		m.rebn(name+".in", name, 2*m.mid, to, max(dilation, 1))
		deep = name
	}
	m.Node("Add", deep+" "+out+".first", out)
}

// rebn is convolution, batch normalisation and Relu.
func (m *saliency) rebn(in, out string, from, to, dilation int) {
	m.Conv(in, out+".c", from, to, 3, pads(dilation), Attr("dilations", []int{dilation, dilation}))
	m.Noise(out+".g", 1.4, 0.3, to).Noise(out+".be", 0.1, 0.3, to).Noise(out+".m", 0, 0.3, to).Noise(out+".v", 1, 0.3, to)
	m.Node("BatchNormalization", fmt.Sprintf("%[1]s.c %[1]s.g %[1]s.be %[1]s.m %[1]s.v", out), out+".n", Attr("epsilon", float32(1e-5)))
	m.Node("Relu", out+".n", out)
}

func (m *saliency) pool(in string) string {
	out := in + ".pool"
	m.Node("MaxPool", in, out, Attr("kernel_shape", []int{2, 2}), Attr("strides", []int{2, 2}), Attr("ceil_mode", 1))
	return out
}

// like enlarges a value to the size of another one.
func (m *saliency) like(in, other string) string {
	out := in + ".up"
	m.Node("Shape", other, out+".s").Node("Slice", out+".s two four zero", out+".hw")
	m.Node("Shape", in, out+".t").Node("Slice", out+".t zero two zero", out+".nc")
	m.Node("Concat", out+".nc "+out+".hw", out+".size", Attr("axis", 0))
	m.Node("Resize", in+" none none "+out+".size", out, Attr("mode", "linear"), Attr("coordinate_transformation_mode", "pytorch_half_pixel"))
	return out
}
