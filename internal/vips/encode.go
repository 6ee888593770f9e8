package vips

// #include <stdlib.h>
// #include "pixels.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

// RawFile is a file of pixels as in Picture.Pix, and nothing else.
type RawFile struct {
	Path          string
	Width, Height int
	Bands         int
}

func (raw RawFile) size() int { return raw.Width * raw.Height * raw.Bands }

// open opens the file if it has all the pixels: what is mapped beyond the end
// of a file kills the process.
func (raw RawFile) open() (*os.File, error) {
	file, err := os.Open(raw.Path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Size() < int64(raw.size()) {
		err = fmt.Errorf("%d bytes of pixels instead of %d", info.Size(), raw.size())
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// EncodeJPEG writes the JPEG out of a raw file without alpha. Memory does not
// grow with the picture. Colour is kept at full resolution (4:4:4): an
// enlarged picture halved in colour would lose what was enlarged.
//
// progress, which may be nil, is called with growing percentages. When ctx is
// cancelled, the encoder stops within some lines.
func EncodeJPEG(ctx context.Context, raw RawFile, out string, quality int, progress func(percent int)) error {
	if raw.Bands == 2 || raw.Bands == 4 {
		return errors.New("encode JPEG: it cannot hold alpha")
	}
	if err := Start(Config{}); err != nil {
		return err
	}
	pixels, err := raw.open()
	if err != nil {
		return fmt.Errorf("encode JPEG: %w", err)
	}
	defer pixels.Close()
	to := C.CString(out)
	defer C.free(unsafe.Pointer(to))
	err = watched(ctx, progress, func(w C.uintptr_t) error {
		if C.pictor_encode_jpeg(C.int(pixels.Fd()), C.int(raw.Width), C.int(raw.Height), C.int(raw.Bands), to, C.int(quality), w) != 0 {
			return lastError()
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("encode JPEG: %w", err)
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

// EncodeWebP writes the WebP out of a raw file. Besides the file, which need not
// stay in memory, it needs 2 bytes of memory per pixel, 4 without loss and 3 or
// 4 more for a grey picture. Sides above 16383 fail, and so may pictures of more
// than 100 megapixels. ctx and progress are as for EncodeJPEG.
func EncodeWebP(ctx context.Context, raw RawFile, out string, as WebP, progress func(percent int)) error {
	if err := encodeWebP(ctx, raw, out, as, progress); err != nil {
		return fmt.Errorf("encode WebP: %w", err)
	}
	return nil
}

func encodeWebP(ctx context.Context, raw RawFile, out string, as WebP, progress func(percent int)) error {
	const side = 16383
	if raw.Width < 1 || raw.Height < 1 || raw.Width > side || raw.Height > side || raw.Bands < 1 || raw.Bands > 4 {
		return fmt.Errorf("no WebP has %d x %d pixels of %d bands", raw.Width, raw.Height, raw.Bands)
	}
	from, err := raw.open()
	if err != nil {
		return err
	}
	defer from.Close()
	pixels, err := syscall.Mmap(int(from.Fd()), 0, raw.size(), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map the pixels: %w", err)
	}
	defer syscall.Munmap(pixels)
	file, err := os.OpenFile(out, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	lossless := C.int(1)
	if !as.Lossless {
		lossless = 0
		as.Effort = max(as.Effort, minWebPEffort)
	}
	err = watched(ctx, progress, func(w C.uintptr_t) error {
		code := C.pictor_encode_webp(unsafe.Pointer(&pixels[0]), C.int(raw.Width), C.int(raw.Height), C.int(raw.Bands),
			C.int(file.Fd()), C.int(as.Quality), lossless, C.int(as.Effort), w)
		if code != 0 {
			return fmt.Errorf("libwebp's error %d", code)
		}
		return nil
	})
	return errors.Join(err, file.Close())
}
