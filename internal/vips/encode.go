package vips

// #include <stdlib.h>
// #include "pixels.h"
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
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
	if raw.Bands == 2 || raw.Bands == 4 {
		return errors.New("encode JPEG: it cannot hold alpha")
	}
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
	Effort   int  // 0, the fastest, to 6; with loss it is at least 2
}

// minWebPEffort is the least effort that encodes any picture. Below it, libwebp
// writes down how every 4 x 4 pixels were predicted, which overflows its first
// partition on a textured photograph of 16 megapixels, after all the work.
const minWebPEffort = 2

// EncodeWebP writes the WebP out of a raw file. It needs about 5 bytes of
// memory per pixel. Sides above 16383 fail, and so may pictures of more than
// 100 megapixels.
func EncodeWebP(raw RawFile, out string, as WebP) error {
	if err := Start(Config{}); err != nil {
		return err
	}
	from, to := C.CString(raw.Path), C.CString(out)
	defer C.free(unsafe.Pointer(from))
	defer C.free(unsafe.Pointer(to))
	lossless := C.int(1)
	if !as.Lossless {
		lossless = 0
		as.Effort = max(as.Effort, minWebPEffort)
	}
	if C.pictor_encode_webp(from, C.int(raw.Width), C.int(raw.Height), C.int(raw.Bands), to, C.int(as.Quality), lossless, C.int(as.Effort)) != 0 {
		return fmt.Errorf("encode WebP: %w", lastError())
	}
	if err := stripWebP(out); err != nil {
		return fmt.Errorf("encode WebP: %w", err)
	}
	return nil
}

// stripWebP takes the metadata off the end of a WebP file. libvips 8.14 writes
// EXIF there, resolution and all, although it was told to strip.
func stripWebP(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	const extended, imageEXIFandXMP = 12, 0x0c // where VP8X begins; its flags
	head := make([]byte, extended+9)
	if _, err := file.ReadAt(head, 0); err != nil || string(head[extended:extended+4]) != "VP8X" {
		return err
	}
	end := int64(binary.LittleEndian.Uint32(head[4:])) + 8
	for at := int64(extended); at < end; {
		var chunk [8]byte
		if _, err := file.ReadAt(chunk[:], at); err != nil {
			return err
		}
		if kind := string(chunk[:4]); kind == "EXIF" || kind == "XMP " {
			end = at
			break
		}
		size := int64(binary.LittleEndian.Uint32(chunk[4:]))
		at += 8 + size + size&1
	}
	binary.LittleEndian.PutUint32(head[4:], uint32(end-8))
	head[extended+8] &^= imageEXIFandXMP
	if _, err := file.WriteAt(head, 0); err != nil {
		return err
	}
	if err := file.Truncate(end); err != nil {
		return err
	}
	return file.Close()
}
