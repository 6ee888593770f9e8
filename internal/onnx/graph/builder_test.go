package graph_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// builder writes model files. Field numbers are those of onnx.proto.
type builder struct {
	graph  []byte
	opset  int
	domain string
	random *rand.Rand
}

func newModel(opset int) *builder {
	return &builder{opset: opset, random: rand.New(rand.NewPCG(1, 2))}
}

func text(b []byte, number protowire.Number, s string) []byte {
	return message(b, number, []byte(s))
}

func message(b []byte, number protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), m)
}

func varint(b []byte, number protowire.Number, v int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), uint64(int64(v)))
}

// bytes is the file.
func (m *builder) bytes() []byte {
	b := varint(nil, 1, 7) // IR version
	b = message(b, 7, text(slices.Clone(m.graph), 2, "test"))
	return message(b, 8, varint(text(nil, 1, m.domain), 2, m.opset))
}

// value declares an input (field 11), an output (12) or an inner value (13).
// A side of -1 is open; without sides there is no shape.
func (m *builder) value(field protowire.Number, name string, sides ...int) *builder {
	kind := varint(nil, 1, 1) // float
	if sides != nil {
		var shape []byte
		for _, side := range sides {
			dim := text(nil, 2, "side")
			if side >= 0 {
				dim = varint(nil, 1, side)
			}
			shape = message(shape, 1, dim)
		}
		kind = message(kind, 2, shape)
	}
	m.graph = message(m.graph, field, message(text(nil, 1, name), 2, message(nil, 1, kind)))
	return m
}

func (m *builder) input(name string, sides ...int) *builder  { return m.value(11, name, sides...) }
func (m *builder) output(name string, sides ...int) *builder { return m.value(12, name, sides...) }

// raw encodes a tensor of an element type.
func raw(name string, kind int, shape []int, data []byte) []byte {
	var b []byte
	for _, side := range shape {
		b = varint(b, 1, side)
	}
	return message(text(varint(b, 2, kind), 8, name), 9, data)
}

func floatBytes(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func intBytes(values ...int64) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

// tensor adds an encoded initializer.
func (m *builder) tensor(encoded []byte) *builder {
	m.graph = message(m.graph, 5, encoded)
	return m
}

func (m *builder) floats(name string, shape []int, values ...float32) *builder {
	return m.tensor(raw(name, 1, shape, floatBytes(values...)))
}

func (m *builder) ints(name string, values ...int64) *builder {
	return m.tensor(raw(name, 7, []int{len(values)}, intBytes(values...)))
}

// noise adds a random tensor around a middle.
func (m *builder) noise(name string, middle, spread float32, shape ...int) *builder {
	n := 1
	for _, side := range shape {
		n *= side
	}
	values := make([]float32, n)
	for i := range values {
		values[i] = middle + spread*(2*m.random.Float32()-1)
	}
	return m.floats(name, shape, values...)
}

// attr is an attribute: an int, []int, float32, []float32, string or []byte, an
// encoded tensor.
type attr struct {
	name  string
	value any
}

func (a attr) encode() []byte {
	b := text(nil, 1, a.name)
	switch v := a.value.(type) {
	case int:
		return varint(varint(b, 3, v), 20, 2)
	case float32:
		return varint(protowire.AppendFixed32(protowire.AppendTag(b, 2, protowire.Fixed32Type), math.Float32bits(v)), 20, 1)
	case string:
		return varint(text(b, 4, v), 20, 3)
	case []byte:
		return varint(message(b, 5, v), 20, 4)
	case []int:
		for _, i := range v {
			b = varint(b, 8, i)
		}
		return varint(b, 20, 7)
	case []float32:
		return varint(message(b, 7, floatBytes(v...)), 20, 6)
	}
	panic(a.name)
}

// node adds an operation. in and out are names with spaces between; a dash is
// an absent one. The node's name is its operator's and first output's.
func (m *builder) node(op, in, out string, attributes ...attr) *builder {
	var encoded [][]byte
	for _, a := range attributes {
		encoded = append(encoded, a.encode())
	}
	return m.rawNode(op, in, out, op+"_"+strings.Fields(out)[0], encoded...)
}

func (m *builder) rawNode(op, in, out, name string, attributes ...[]byte) *builder {
	var b []byte
	for i, names := range []string{in, out} {
		for _, s := range strings.Fields(names) {
			b = text(b, protowire.Number(i+1), strings.Trim(s, "-"))
		}
	}
	b = text(text(text(b, 3, name), 4, op), 7, m.domain)
	for _, a := range attributes {
		b = message(b, 5, a)
	}
	m.graph = message(m.graph, 1, b)
	return m
}

// conv adds a convolution with random weights that keeps values in range.
func (m *builder) conv(in, out string, from, to, side int, attributes ...attr) *builder {
	reach := float32(math.Sqrt(3 / float64(from*side*side)))
	m.noise(out+".w", 0, reach, to, from, side, side).noise(out+".b", 0, 0.1, to)
	pads := attr{"pads", []int{side / 2, side / 2, side / 2, side / 2}}
	if !slices.ContainsFunc(attributes, func(a attr) bool { return a.name == "pads" }) {
		attributes = append(attributes, pads)
	}
	return m.node("Conv", in+" "+out+".w "+out+".b", out, attributes...)
}

// picture is something between a photograph and a test card: ramps, edges,
// texture and noise, in 0..1.
func picture(n, channels, h, w int) []float32 {
	random := rand.New(rand.NewPCG(uint64(h), uint64(w)))
	out := make([]float32, 0, n*channels*h*w)
	for c := range n * channels {
		for y := range h {
			for x := range w {
				v := 0.3 + 0.3*float64(x)/float64(w) + 0.1*math.Sin(float64(y*(c+2))/3)
				if dx, dy := x-w/2, y-h/2; dx*dx+dy*dy < w*h/9 {
					v = 0.9 - 0.1*float64(c%3)
				}
				if (x/7+y/5)%9 == 0 {
					v = 0.05
				}
				out = append(out, float32(max(0, min(1, v+0.03*random.Float64()))))
			}
		}
	}
	return out
}
