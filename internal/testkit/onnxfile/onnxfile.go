// Package onnxfile writes model files for tests: single operators, and networks
// with the structure and the interface of well-known ones, whose weights are
// random. The real weights are hundreds of megabytes that a test cannot download.
package onnxfile

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// File is a model file in the making. Field numbers are those of onnx.proto.
// Names of values are given as one string with spaces between; a dash is an
// absent one.
type File struct {
	Domain string     // of the operators; empty is ONNX's own
	Random *rand.Rand // where weights come from
	graph  []byte
	opset  int
}

// New begins a file with operators of the version. The weights are the same
// every time.
func New(opset int) *File {
	return &File{opset: opset, Random: rand.New(rand.NewPCG(1, 2))}
}

// Text appends a string field.
func Text(b []byte, number protowire.Number, s string) []byte {
	return Message(b, number, []byte(s))
}

// Message appends a field of bytes, such as another message.
func Message(b []byte, number protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), m)
}

// Varint appends a number field.
func Varint(b []byte, number protowire.Number, v int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), uint64(int64(v)))
}

// Bytes is the file.
func (m *File) Bytes() []byte {
	b := Varint(nil, 1, 7) // IR version
	b = Message(b, 7, Text(slices.Clone(m.graph), 2, "test"))
	return Message(b, 8, Varint(Text(nil, 1, m.Domain), 2, m.opset))
}

// Element types of tensors.
const (
	Float32 = 1
	Int64   = 7
	Float16 = 10
)

// Fields of a graph that Value declares.
const (
	input, output = 11, 12
)

// Value declares an input (field 11), an output (12) or an inner value (13). A
// side of -1 is open; without sides there is no shape.
func (m *File) Value(field protowire.Number, name string, sides ...int) *File {
	return m.typed(field, Float32, name, sides...)
}

func (m *File) typed(field protowire.Number, elements int, name string, sides ...int) *File {
	kind := Varint(nil, 1, elements)
	if sides != nil {
		var shape []byte
		for _, side := range sides {
			dim := Text(nil, 2, "side")
			if side >= 0 {
				dim = Varint(nil, 1, side)
			}
			shape = Message(shape, 1, dim)
		}
		kind = Message(kind, 2, shape)
	}
	m.graph = Message(m.graph, field, Message(Text(nil, 1, name), 2, Message(nil, 1, kind)))
	return m
}

// Input declares an input.
func (m *File) Input(name string, sides ...int) *File { return m.Value(input, name, sides...) }

// Output declares an output.
func (m *File) Output(name string, sides ...int) *File { return m.Value(output, name, sides...) }

// HalfInput declares an input of half precision.
func (m *File) HalfInput(name string, sides ...int) *File {
	return m.typed(input, Float16, name, sides...)
}

// HalfOutput declares an output of half precision.
func (m *File) HalfOutput(name string, sides ...int) *File {
	return m.typed(output, Float16, name, sides...)
}

// Raw encodes a tensor of an element type.
func Raw(name string, kind int, shape []int, data []byte) []byte {
	var b []byte
	for _, side := range shape {
		b = Varint(b, 1, side)
	}
	return Message(Text(Varint(b, 2, kind), 8, name), 9, data)
}

// FloatBytes are the data of a tensor of floats.
func FloatBytes(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// IntBytes are the data of a tensor of 64-bit integers.
func IntBytes(values ...int64) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

// Tensor adds an encoded initializer.
func (m *File) Tensor(encoded []byte) *File {
	m.graph = Message(m.graph, 5, encoded)
	return m
}

// Floats adds an initializer of floats.
func (m *File) Floats(name string, shape []int, values ...float32) *File {
	return m.Tensor(Raw(name, Float32, shape, FloatBytes(values...)))
}

// Ints adds an initializer of a row of integers.
func (m *File) Ints(name string, values ...int64) *File {
	return m.Tensor(Raw(name, Int64, []int{len(values)}, IntBytes(values...)))
}

// Noise adds a random tensor around a middle.
func (m *File) Noise(name string, middle, spread float32, shape ...int) *File {
	n := 1
	for _, side := range shape {
		n *= side
	}
	values := make([]float32, n)
	for i := range values {
		values[i] = middle + spread*(2*m.Random.Float32()-1)
	}
	return m.Floats(name, shape, values...)
}

// Attribute is an attribute of a node.
type Attribute struct {
	name  string
	value any
}

// Attr is an attribute: an int, []int, float32, []float32, string or []byte, an
// encoded tensor.
func Attr(name string, value any) Attribute { return Attribute{name, value} }

// Encode is the attribute as the file has it.
func (a Attribute) Encode() []byte {
	b := Text(nil, 1, a.name)
	switch v := a.value.(type) {
	case int:
		return Varint(Varint(b, 3, v), 20, 2)
	case float32:
		return Varint(protowire.AppendFixed32(protowire.AppendTag(b, 2, protowire.Fixed32Type), math.Float32bits(v)), 20, 1)
	case string:
		return Varint(Text(b, 4, v), 20, 3)
	case []byte:
		return Varint(Message(b, 5, v), 20, 4)
	case []int:
		for _, i := range v {
			b = Varint(b, 8, i)
		}
		return Varint(b, 20, 7)
	case []float32:
		return Varint(Message(b, 7, FloatBytes(v...)), 20, 6)
	}
	panic(a.name)
}

// Node adds an operation. Its name is its operator's and first output's.
func (m *File) Node(op, in, out string, attributes ...Attribute) *File {
	var encoded [][]byte
	for _, a := range attributes {
		encoded = append(encoded, a.Encode())
	}
	return m.RawNode(op, in, out, op+"_"+strings.Fields(out)[0], encoded...)
}

// RawNode adds an operation with encoded attributes.
func (m *File) RawNode(op, in, out, name string, attributes ...[]byte) *File {
	var b []byte
	for i, names := range []string{in, out} {
		for _, s := range strings.Fields(names) {
			b = Text(b, protowire.Number(i+1), strings.Trim(s, "-"))
		}
	}
	b = Text(Text(Text(b, 3, name), 4, op), 7, m.Domain)
	for _, a := range attributes {
		b = Message(b, 5, a)
	}
	m.graph = Message(m.graph, 1, b)
	return m
}

// Conv adds a convolution with random weights that keeps values in range.
func (m *File) Conv(in, out string, from, to, side int, attributes ...Attribute) *File {
	reach := float32(math.Sqrt(3 / float64(from*side*side)))
	m.Noise(out+".w", 0, reach, to, from, side, side).Noise(out+".b", 0, 0.1, to)
	if !slices.ContainsFunc(attributes, func(a Attribute) bool { return a.name == "pads" }) {
		attributes = append(attributes, pads(side/2))
	}
	return m.Node("Conv", in+" "+out+".w "+out+".b", out, attributes...)
}

func pads(n int) Attribute { return Attr("pads", []int{n, n, n, n}) }
