package vips

// #include "pixels.h"
import "C"

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/jpeg"
	"runtime"
	"slices"
	"sync/atomic"
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
func Decode(b []byte) (*Picture, error) { return DecodeContext(context.Background(), b) }

// DecodeContext is Decode, and ends early with ctx's error. What libvips must
// decode as a whole before the first line, an interlaced PNG, a progressive JPEG
// or a WebP, it decodes to the end.
func DecodeContext(ctx context.Context, b []byte) (*Picture, error) {
	f, err := inspect(b)
	if err != nil {
		return nil, err
	}
	if f.Frames > 1 {
		return nil, &Error{Message: "The picture is animated. Send a single frame."}
	}
	if f.Width > job.MaxImagePixels/f.Height {
		return nil, &Error{Message: fmt.Sprintf("The picture has %d x %d pixels; at most %d megapixels are possible.",
			f.Width, f.Height, job.MaxImagePixels/1_000_000)}
	}

	p := &Picture{Width: f.Width, Height: f.Height, Bands: f.Bands()}
	p.Pix = make([]byte, p.Width*p.Height*p.Bands)
	width, height := p.Width, p.Height // as stored
	if f.orientation >= 5 {
		width, height = height, width
	}
	data := b
	switch {
	case f.Type == job.PNG:
		data = safePNG(b)
	case f.Type == job.JPEG && !f.Interlaced && isCutOff(f.Type, b):
		// Some programs forget the end mark, and every viewer shows what they
		// write. With the mark, libjpeg only warns when more than it is missing.
		data = slices.Concat(b, []byte(jpegEnd))
	}
	var warned C.int
	stop := new(int32)
	defer context.AfterFunc(ctx, func() { atomic.StoreInt32(stop, 1) })()
	result := C.pictor_decode(unsafe.Pointer(&data[0]), C.size_t(len(data)), loader(f.Type), C.int(f.orientation),
		profileIntent(f.profile), light(f.profile), (*C.uchar)(&p.Pix[0]), C.int(width), C.int(height), C.int(p.Bands), &warned, (*C.int)(stop))
	runtime.KeepAlive(data)
	if err := ctx.Err(); err != nil {
		C.vips_error_clear()
		return nil, err
	}
	cause := lastError() // also after success: a warning leaves its text behind
	if result != 0 {
		return nil, blame(f.Type, b, cause)
	}
	if warned != 0 && f.Type == job.JPEG {
		if err := findDamage(data); err != nil {
			return nil, blame(f.Type, b, err)
		}
	}
	return p, nil
}

// findDamage looks at a JPEG that made libjpeg warn. libjpeg warns alike of an
// odd but whole file, such as some telephones write, and of one whose lower
// half it had to make up in grey. Go's decoder accepts the first and refuses
// the second. What it cannot decode at all gets the benefit of the doubt.
func findDamage(b []byte) error {
	_, err := jpeg.Decode(bytes.NewReader(b))
	var unsupported jpeg.UnsupportedError
	if errors.As(err, &unsupported) {
		return nil
	}
	return err
}
