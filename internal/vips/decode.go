package vips

// #include "pixels.h"
import "C"

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"pictor/internal/job"
	"pictor/internal/tempfile"
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
func Decode(b []byte) (*Picture, error) { return DecodeContext(context.Background(), b, "", nil) }

// DecodeContext is Decode, and ends early with ctx's error. dir holds what a
// JPEG of several passes needs besides its pixels, up to 8 bytes per pixel while
// it is decoded; empty for the system's folder. progress, which may be nil, is
// called with growing percentages.
func DecodeContext(ctx context.Context, b []byte, dir string, progress func(percent int)) (*Picture, error) {
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
	d := &decoding{facts: f, ctx: ctx, progress: progress, data: b, pix: p.Pix, width: p.Width, height: p.Height}
	if f.orientation >= 5 {
		d.width, d.height = d.height, d.width
	}
	d.layout = upright(f.orientation, d.width, d.height, p.Bands)
	if err := d.decode(dir); err != nil {
		return nil, err
	}
	return p, nil
}

// decoding is a picture on its way from a file to its pixels.
type decoding struct {
	facts
	ctx           context.Context
	progress      func(percent int)
	data          []byte
	pix           []byte
	width, height int             // as stored
	layout        C.pictor_layout // of the stored picture
}

func (d *decoding) decode(dir string) error {
	switch {
	case d.Type == job.PNG && d.Interlaced:
		return d.decodeInterlaced()
	case d.Type == job.PNG:
		return d.run(safePNG(d.data), d.layout, d.width, d.height, nil, d.progress)
	case d.Type == job.JPEG && d.Interlaced:
		scratch, err := tempfile.Unnamed(dir, "pictor-decode-")
		if err != nil {
			return fmt.Errorf("open a file for the passes of a JPEG: %w", err)
		}
		defer scratch.Close()
		return d.run(d.data, d.layout, d.width, d.height, scratch, d.progress)
	default:
		return d.run(d.data, d.layout, d.width, d.height, nil, d.progress)
	}
}

// run has libvips put width x height pixels where the layout says.
func (d *decoding) run(data []byte, to C.pictor_layout, width, height int, scratch *os.File, progress func(percent int)) error {
	file := -1
	if scratch != nil {
		file = int(scratch.Fd())
	}
	return watched(d.ctx, progress, func(w C.uintptr_t) error {
		result := C.pictor_decode(unsafe.Pointer(&data[0]), C.size_t(len(data)), loader(d.Type), profileIntent(d.profile), light(d.profile),
			(*C.uchar)(&d.pix[0]), to, C.int(width), C.int(height), C.int(d.Bands()), C.int(file), w)
		runtime.KeepAlive(data)
		runtime.KeepAlive(scratch)
		cause := lastError() // also after success: a warning leaves its text behind
		switch result {
		case C.PICTOR_DECODED:
			return nil
		case C.PICTOR_OUT_OF_SPACE:
			return fmt.Errorf("decode a JPEG of several passes: no room in the folder for temporary files: %w", cause)
		default:
			return d.blame(cause)
		}
	})
}

func (d *decoding) blame(cause error) error { return blame(d.Type, d.data, cause) }

// upright says where the pixels of a stored picture lie in the upright one.
func upright(orientation, width, height, bands int) C.pictor_layout {
	row := bands * width
	if orientation >= 5 { // turned by a quarter, a row is as long as the stored picture is high
		row = bands * height
	}
	right, bottom := width-1, height-1
	layout := func(origin, dx, dy int) C.pictor_layout {
		return C.pictor_layout{origin: C.ptrdiff_t(origin), dx: C.ptrdiff_t(dx), dy: C.ptrdiff_t(dy)}
	}
	switch orientation {
	case 2:
		return layout(right*bands, -bands, row)
	case 3:
		return layout(right*bands+bottom*row, -bands, -row)
	case 4:
		return layout(bottom*row, bands, -row)
	case 5:
		return layout(0, row, bands)
	case 6:
		return layout(bottom*bands, row, -bands)
	case 7:
		return layout(bottom*bands+right*row, -row, -bands)
	case 8:
		return layout(right*row, -row, bands)
	default:
		return layout(0, bands, row)
	}
}
