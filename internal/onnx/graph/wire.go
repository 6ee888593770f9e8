package graph

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// field is one field of a protobuf message.
type field struct {
	number protowire.Number
	kind   protowire.Type
	value  uint64 // of numbers
	bytes  []byte // of strings, messages and packed numbers
	whole  []byte // tag and value
}

// eachField calls f for each field of a message, in order.
func eachField(message []byte, f func(field) error) error {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		n := 0
		v := field{number: number, kind: kind}
		var small uint32
		switch rest := message[tag:]; kind {
		case protowire.VarintType:
			v.value, n = protowire.ConsumeVarint(rest)
		case protowire.Fixed32Type:
			small, n = protowire.ConsumeFixed32(rest)
			v.value = uint64(small)
		case protowire.Fixed64Type:
			v.value, n = protowire.ConsumeFixed64(rest)
		case protowire.BytesType:
			v.bytes, n = protowire.ConsumeBytes(rest)
		default:
			return errors.New("the file has a field of an unknown kind")
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		v.whole = message[:tag+n]
		message = message[tag+n:]
		if err := f(v); err != nil {
			return err
		}
	}
	return nil
}

// varints are the numbers of a repeated field, packed or not.
func (f field) varints() ([]uint64, error) {
	if f.kind == protowire.VarintType {
		return []uint64{f.value}, nil
	}
	var all []uint64
	for b := f.bytes; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		all = append(all, v)
		b = b[n:]
	}
	return all, nil
}

// fixed32s are the bytes of a repeated float field, packed or not.
func (f field) fixed32s() ([]byte, error) {
	if f.kind == protowire.Fixed32Type {
		return protowire.AppendFixed32(nil, uint32(f.value)), nil
	}
	return f.bytes, nil
}

// fixed64s are the bytes of a repeated double field, packed or not.
func (f field) fixed64s() ([]byte, error) {
	if f.kind == protowire.Fixed64Type {
		return protowire.AppendFixed64(nil, f.value), nil
	}
	return f.bytes, nil
}

// lastString is a string field's value: the last one counts.
func lastString(message []byte, number protowire.Number) string {
	s := ""
	_ = eachField(message, func(f field) error { // a broken message gets its error where it is read whole
		if f.number == number {
			s = string(f.bytes)
		}
		return nil
	})
	return s
}

// lastNumber is a number field's value: the last one counts.
func lastNumber(message []byte, number protowire.Number) uint64 {
	v := uint64(0)
	_ = eachField(message, func(f field) error { // as above
		if f.number == number {
			v = f.value
		}
		return nil
	})
	return v
}

// lastMessage is the bytes of an embedded message: the last one counts, which
// holds for what is written by one program.
func lastMessage(message []byte, number protowire.Number) []byte {
	var b []byte
	_ = eachField(message, func(f field) error { // as above
		if f.number == number {
			b = f.bytes
		}
		return nil
	})
	return b
}

func appendString(b []byte, number protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), s)
}

func appendMessage(b []byte, number protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), message)
}
