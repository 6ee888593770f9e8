package vips

// #include "pixels.h"
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"

	"pictor/internal/job"
)

// Picture is decoded: 8-bit sRGB, upright, row after row without gaps, bands
// interleaved, alpha straight (colour not multiplied by it).
type Picture struct {
	Width, Height int
	Bands         int // 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha
	Pix           []byte
}

// Decode makes pixels of a PNG, JPEG or WebP. It returns an *Error when the
// bytes are to blame: no picture, animated, damaged, cut off, or larger than
// job.MaxImagePixels, which is refused before any pixel is decoded.
func Decode(b []byte) (*Picture, error) {
	h, err := ReadHeader(b)
	if err != nil {
		return nil, err
	}
	if h.Frames > 1 {
		return nil, &Error{Message: "The picture is animated. Send a single frame."}
	}
	if h.Width > job.MaxImagePixels/h.Height {
		return nil, &Error{Message: fmt.Sprintf("The picture has %d x %d pixels; at most %d megapixels are possible.",
			h.Width, h.Height, job.MaxImagePixels/1_000_000)}
	}

	p := &Picture{Width: h.Width, Height: h.Height, Bands: h.Bands()}
	p.Pix = make([]byte, p.Width*p.Height*p.Bands)
	width, height := p.Width, p.Height // as stored
	if h.orientation >= 5 {
		width, height = height, width
	}
	result := C.pictor_decode(unsafe.Pointer(&b[0]), C.size_t(len(b)), loader(h.Type), C.int(h.orientation),
		(*C.uchar)(&p.Pix[0]), C.int(width), C.int(height), C.int(p.Bands))
	runtime.KeepAlive(b)
	if result != 0 {
		return nil, blame(h.Type, b, lastError())
	}
	return p, nil
}
