package onnx

import (
	"encoding/binary"
	"math"
)

// fromHalf converts little-endian IEEE 754 half-precision floats.
func fromHalf(to []float32, from []byte) {
	for i := range to {
		to[i] = half(binary.LittleEndian.Uint16(from[2*i:]))
	}
}

func half(h uint16) float32 {
	sign, exponent, fraction := uint32(h>>15)<<31, uint32(h>>10)&31, uint32(h)&1023
	switch exponent {
	case 0: // zero and subnormal numbers: fraction / 2^24
		return math.Float32frombits(math.Float32bits(float32(fraction)/(1<<24)) | sign)
	case 31: // infinities and NaN
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}
