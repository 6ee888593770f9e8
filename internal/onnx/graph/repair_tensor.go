package graph

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	onnx "github.com/owulveryck/onnx-go"
	"google.golang.org/protobuf/encoding/protowire"
)

// Element types of tensors, from onnx.proto.
const (
	typeFloat, typeUint8, typeInt8, typeUint16, typeInt16, typeInt32, typeInt64 = 1, 2, 3, 4, 5, 6, 7
	typeBool, typeFloat16, typeDouble, typeUint32, typeUint64, typeBFloat16     = 9, 10, 11, 12, 13, 16
)

// attribute is a node's attribute, encoded for onnx-go.
type attribute struct {
	name  string
	kind  uint64
	bytes []byte
}

// Types of attributes, and the fields that hold them, from onnx.proto.
const (
	kindFloat, kindInt, kindString, kindTensor, kindFloats, kindInts, kindStrings                  = 1, 2, 3, 4, 6, 7, 8
	attributeFloat, attributeInt, attributeString, attributeTensor, attributeFloats, attributeInts = 2, 3, 4, 5, 7, 8
	attributeStrings, attributeKind                                                                = 9, 20
)

// repairAttribute states the type of an attribute. One that no supported
// operator has, a graph say, comes back without bytes.
func repairAttribute(b []byte) (attribute, error) {
	a := attribute{}
	guess := uint64(0)
	err := eachField(b, func(f field) error {
		kinds := map[protowire.Number]uint64{
			attributeFloat: kindFloat, attributeInt: kindInt, attributeString: kindString, attributeTensor: kindTensor,
			attributeFloats: kindFloats, attributeInts: kindInts, attributeStrings: kindStrings,
		}
		switch k, ok := kinds[f.number]; {
		case f.number == 1:
			a.name = string(f.bytes)
		case f.number == attributeKind:
			a.kind = f.value
		case f.number == attributeTensor:
			guess = k
			t, err := repairTensor("", f.bytes)
			if err != nil {
				return err
			}
			if t != nil {
				a.bytes = appendMessage(a.bytes, f.number, t)
			}
		case ok:
			guess = k
			a.bytes = append(a.bytes, f.whole...)
		}
		return nil
	})
	if a.kind == 0 {
		a.kind = guess
	}
	if a.kind != guess || guess == 0 {
		a.bytes = nil // a graph, or nothing: an operator that needs it is refused later
		return a, err
	}
	a.bytes = appendString(a.bytes, 1, a.name)
	a.bytes = protowire.AppendTag(a.bytes, attributeKind, protowire.VarintType)
	a.bytes = protowire.AppendVarint(a.bytes, a.kind)
	return a, err
}

// constantTensor is the value of a Constant node, as a tensor message.
func constantTensor(n *rawNode) ([]byte, error) {
	for _, a := range n.attributes {
		var t []byte
		count := uint64(0)
		err := eachField(a.bytes, func(f field) error {
			switch {
			case a.name == "value" && f.number == attributeTensor:
				t = append(t, f.bytes...)
			case a.name == "value_float" && f.number == attributeFloat, a.name == "value_floats" && f.number == attributeFloats:
				raw, err := f.fixed32s()
				count += uint64(len(raw) / 4)
				t = append(t, raw...)
				return err
			case a.name == "value_int" && f.number == attributeInt, a.name == "value_ints" && f.number == attributeInts:
				values, err := f.varints()
				count += uint64(len(values))
				for _, v := range values {
					t = binary.LittleEndian.AppendUint64(t, v)
				}
				return err
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		switch a.name {
		case "value":
			if t == nil {
				return rawTensor("", []uint64{0}, typeFloat, nil), nil
			}
			return t, nil
		case "value_float":
			return rawTensor("", nil, typeFloat, t), nil
		case "value_floats":
			return rawTensor("", []uint64{count}, typeFloat, t), nil
		case "value_int":
			return rawTensor("", nil, typeInt64, t), nil
		case "value_ints":
			return rawTensor("", []uint64{count}, typeInt64, t), nil
		}
	}
	return nil, errors.New("no value of a supported type")
}

// rawTensor encodes a tensor whose data are little-endian bytes.
func rawTensor(name string, dims []uint64, kind uint64, raw []byte) []byte {
	b := make([]byte, 0, len(raw)+64)
	for _, d := range dims {
		b = protowire.AppendTag(b, tensorDims, protowire.VarintType)
		b = protowire.AppendVarint(b, d)
	}
	b = protowire.AppendTag(b, tensorType, protowire.VarintType)
	b = protowire.AppendVarint(b, kind)
	b = appendString(b, tensorName, name)
	return appendMessage(b, tensorRaw, raw)
}

// repairTensor re-encodes a tensor as float32 or int64 in raw bytes; nil for an
// empty one.
func repairTensor(name string, b []byte) ([]byte, error) {
	var dims, varints []uint64
	var raw, fixed []byte
	var kind uint64
	err := eachField(b, func(f field) (err error) {
		var more []uint64
		switch f.number {
		case tensorDims:
			more, err = f.varints()
			dims = append(dims, more...)
		case tensorType:
			kind = f.value
		case 3, 13:
			return errors.New("segments and external data are not supported")
		case 4: // float_data
			more, err := f.fixed32s()
			fixed = append(fixed, more...)
			return err
		case 10: // double_data
			more, err := f.fixed64s()
			fixed = append(fixed, more...)
			return err
		case 5, 7, 11: // int32_data, int64_data, uint64_data
			more, err = f.varints()
			varints = append(varints, more...)
		case tensorRaw:
			raw = f.bytes
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	shape := make([]int, len(dims))
	for i, d := range dims {
		shape[i] = int(d)
	}
	count, err := size(shape)
	if err != nil || count == 0 {
		return nil, err
	}
	width, convert, to := elementOf(kind)
	if width == 0 {
		return nil, fmt.Errorf("elements of type %d are not supported", kind)
	}
	switch {
	case len(raw) > 0:
	case len(fixed) > 0:
		raw = fixed
	default: // smaller integers and halves lie in int32_data, one a varint
		raw = make([]byte, 0, len(varints)*width)
		for _, v := range varints {
			raw = append(raw, binary.LittleEndian.AppendUint64(nil, v)[:width]...)
		}
	}
	if len(raw)/width != count || len(raw)%width != 0 {
		return nil, fmt.Errorf("shape %v with %d bytes of data", shape, len(raw))
	}
	return rawTensor(name, dims, to, convert(raw)), nil
}

// elementOf says how wide an element type is, and how it is converted to which
// of the two types that the engine works with.
func elementOf(kind uint64) (width int, convert func([]byte) []byte, to uint64) {
	le := binary.LittleEndian
	ints := func(width int, read func([]byte) int64) (int, func([]byte) []byte, uint64) {
		return width, func(b []byte) []byte {
			out := make([]byte, 0, len(b)/width*8)
			for ; len(b) >= width; b = b[width:] {
				out = le.AppendUint64(out, uint64(read(b)))
			}
			return out
		}, typeInt64
	}
	floats := func(width int, read func([]byte) float32) (int, func([]byte) []byte, uint64) {
		return width, func(b []byte) []byte {
			out := make([]byte, 0, len(b)/width*4)
			for ; len(b) >= width; b = b[width:] {
				out = le.AppendUint32(out, math.Float32bits(read(b)))
			}
			return out
		}, typeFloat
	}
	same := func(b []byte) []byte { return b }
	switch kind {
	case typeFloat:
		return 4, same, typeFloat
	case typeInt64, typeUint64:
		return 8, same, typeInt64
	case typeDouble:
		return floats(8, func(b []byte) float32 { return float32(math.Float64frombits(le.Uint64(b))) })
	case typeFloat16:
		return floats(2, func(b []byte) float32 { return half(le.Uint16(b)) })
	case typeBFloat16:
		return floats(2, func(b []byte) float32 { return math.Float32frombits(uint32(le.Uint16(b)) << 16) })
	case typeInt32:
		return ints(4, func(b []byte) int64 { return int64(int32(le.Uint32(b))) })
	case typeUint32:
		return ints(4, func(b []byte) int64 { return int64(le.Uint32(b)) })
	case typeInt16:
		return ints(2, func(b []byte) int64 { return int64(int16(le.Uint16(b))) })
	case typeUint16:
		return ints(2, func(b []byte) int64 { return int64(le.Uint16(b)) })
	case typeInt8:
		return ints(1, func(b []byte) int64 { return int64(int8(b[0])) })
	case typeUint8, typeBool:
		return ints(1, func(b []byte) int64 { return int64(b[0]) })
	}
	return 0, nil, 0
}

// half widens an IEEE 754 half-precision number.
func half(bits uint16) float32 {
	exponent, fraction := int(bits>>10&31), float64(bits&1023)
	value := math.Ldexp(1024+fraction, exponent-25)
	switch {
	case exponent == 0:
		value = math.Ldexp(fraction, -24)
	case exponent == 31 && fraction == 0:
		value = math.Inf(1)
	case exponent == 31:
		value = math.NaN()
	}
	if bits>>15 == 1 {
		value = -value
	}
	return float32(value)
}

// decodeTensor has onnx-go decode a repaired tensor.
func decodeTensor(b []byte) (tensor, error) {
	t, err := onnx.NewTensor(b)
	if err != nil {
		return tensor{}, err
	}
	return constant(t)
}
