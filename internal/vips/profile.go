package vips

// #include "pixels.h"
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
)

const (
	profileHead = 128 + 4 // header and tag count, then the tag table
	profileTag  = 12      // bytes of a tag in the table
)

// checkProfile refuses bytes that cannot be an ICC profile. No bytes are fine.
func checkProfile(icc []byte) error {
	if len(icc) == 0 {
		return nil
	}
	if len(icc) < profileHead || string(icc[36:40]) != "acsp" {
		return errors.New("no ICC profile header")
	}
	if size := be32(icc); size < profileHead || size > len(icc) {
		return fmt.Errorf("ICC profile of %d bytes says that it has %d", len(icc), size)
	}
	if tags := be32(icc[128:]); tags > (len(icc)-profileHead)/profileTag {
		return fmt.Errorf("ICC profile of %d bytes says that it has %d tags", len(icc), tags)
	}
	for tag := range profileTags(icc) {
		if from, size := be32(tag[4:]), be32(tag[8:]); from+size > len(icc) {
			return fmt.Errorf("ICC profile tag %q ends at byte %d of %d", tag[:4], from+size, len(icc))
		}
	}
	return nil
}

func profileTags(icc []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i := range be32(icc[128:]) {
			if !yield(icc[profileHead+i*profileTag:][:profileTag]) {
				return
			}
		}
	}
}

// profileIntent is the rendering intent for a checked profile: colours that
// sRGB can show stay what they are (relative colorimetric), unless the profile
// has only the table of the perceptual intent. libvips takes a profile that
// lacks the intent for none at all.
func profileIntent(icc []byte) C.int {
	var perceptual, relative bool
	if len(icc) > 0 {
		for tag := range profileTags(icc) {
			perceptual = perceptual || string(tag[:4]) == "A2B0"
			relative = relative || string(tag[:4]) == "A2B1"
		}
	}
	if perceptual && !relative {
		return C.VIPS_INTENT_PERCEPTUAL
	}
	return C.VIPS_INTENT_RELATIVE
}

// light is what the colours of a checked matrix profile add to linear sRGB; nil
// for every other kind of profile. libvips checks it against lcms, which may
// know better.
func light(icc []byte) *C.pictor_light {
	tags := make(map[string][]byte)
	if len(icc) > 0 {
		for tag := range profileTags(icc) {
			tags[string(tag[:4])] = icc[be32(tag[4:]):][:be32(tag[8:])]
		}
	}
	if tags["A2B0"] != nil || tags["A2B1"] != nil {
		return nil // a table comes before the matrix
	}
	// XYZ under D50, as profiles count, to linear sRGB.
	matrix := [3][3]float64{
		{3.1338561, -1.6168667, -0.4906146},
		{-0.9787684, 1.9161415, 0.0334540},
		{0.0719453, -0.2289914, 1.4052427},
	}
	var l C.pictor_light
	for sample, colour := range []string{"r", "g", "b"} {
		xyz, curve := tags[colour+"XYZ"], toneCurve(tags[colour+"TRC"])
		if len(xyz) < 20 || curve == nil {
			return nil
		}
		for c, row := range matrix {
			whole := 0.0
			for i, weight := range row {
				whole += weight * s15Fixed16(xyz[8+4*i:])
			}
			for v := range 256 {
				l.adds[sample][v][c] = C.int(math.Round(whole * curve(float64(v)/255) * C.PICTOR_FULL_LIGHT))
			}
		}
	}
	return &l
}

// toneCurve is the function of a curve tag, from 0 to 1 to linear light; nil
// for one that it does not know.
func toneCurve(tag []byte) func(float64) float64 {
	switch {
	case len(tag) >= 12 && string(tag[:4]) == "curv":
		points, table := be32(tag[8:]), tag[12:]
		if len(table)/2 < points {
			return nil
		}
		at := func(i int) float64 { return float64(binary.BigEndian.Uint16(table[2*i:])) }
		switch points {
		case 0:
			return func(v float64) float64 { return v }
		case 1:
			return func(v float64) float64 { return math.Pow(v, at(0)/256) }
		}
		return func(v float64) float64 {
			place := v * float64(points-1)
			i := min(int(place), points-2)
			return (at(i) + (at(i+1)-at(i))*(place-float64(i))) / 65535
		}
	case len(tag) >= 12 && string(tag[:4]) == "para":
		kind := binary.BigEndian.Uint16(tag[8:])
		count := map[uint16]int{0: 1, 3: 5}[kind] // a power, or one with a straight foot
		if count == 0 || len(tag) < 12+4*count {
			return nil
		}
		var p [5]float64
		for i := range count {
			p[i] = s15Fixed16(tag[12+4*i:])
		}
		g, a, b, c, d := p[0], p[1], p[2], p[3], p[4]
		return func(v float64) float64 {
			switch {
			case kind == 0:
				return math.Pow(v, g)
			case v >= d:
				return math.Pow(a*v+b, g)
			default:
				return c * v
			}
		}
	}
	return nil
}

func s15Fixed16(b []byte) float64 { return float64(int32(binary.BigEndian.Uint32(b))) / 65536 }
