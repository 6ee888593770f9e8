package vips

// #include <stdlib.h>
// #include "pixels.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// RawFile is a file of pixels as in Picture.Pix, and nothing else.
type RawFile struct {
	Path          string
	Width, Height int
	Bands         int
}

// EncodeJPEG writes the JPEG out of a raw file without alpha. Memory does not
// grow with the picture. Colour is kept at full resolution (4:4:4): an
// enlarged picture halved in colour would lose what was enlarged.
func EncodeJPEG(raw RawFile, out string, quality int) error {
	if err := Start(Config{}); err != nil {
		return err
	}
	from, to := C.CString(raw.Path), C.CString(out)
	defer C.free(unsafe.Pointer(from))
	defer C.free(unsafe.Pointer(to))
	if C.pictor_encode_jpeg(from, C.int(raw.Width), C.int(raw.Height), C.int(raw.Bands), to, C.int(quality)) != 0 {
		return fmt.Errorf("encode JPEG: %w", lastError())
	}
	return nil
}

// WebP is how a WebP is encoded.
type WebP struct {
	Quality  int  // 0 to 100
	Lossless bool // Quality then only steers the effort
	Effort   int  // 0, the fastest, to 6
}

// EncodeWebP writes the WebP out of a raw file. It needs about 5 bytes of
// memory per pixel. Sides above 16383 fail, and so may pictures of more than
// 100 megapixels, after all the work.
func EncodeWebP(raw RawFile, out string, as WebP) error {
	if err := Start(Config{}); err != nil {
		return err
	}
	from, to := C.CString(raw.Path), C.CString(out)
	defer C.free(unsafe.Pointer(from))
	defer C.free(unsafe.Pointer(to))
	lossless := C.int(0)
	if as.Lossless {
		lossless = 1
	}
	if C.pictor_encode_webp(from, C.int(raw.Width), C.int(raw.Height), C.int(raw.Bands), to, C.int(as.Quality), lossless, C.int(as.Effort)) != 0 {
		return fmt.Errorf("encode WebP: %w", lastError())
	}
	return nil
}
