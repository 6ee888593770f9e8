package vips

// #include "pixels.h"
import "C"

import (
	"errors"
	"fmt"
	"iter"
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
func profileIntent(icc []byte) int {
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
