package vips

// #include "pixels.h"
import "C"

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/h2non/bimg"

	"pictor/internal/job"
)

// SniffLen is how many first bytes of a file Sniff looks at.
const SniffLen = 12

// Sniff tells the type of an image by its first bytes: job.PNG, job.JPEG or
// job.WebP; false for anything else.
func Sniff(head []byte) (imageType string, ok bool) {
	// For a head that it does not know at once, bimg has every loader of
	// libvips look at it. Only heads of our types get that far.
	switch {
	case bytes.HasPrefix(head, []byte("\xff\xd8\xff")):
	case bytes.HasPrefix(head, []byte(pngSignature)):
	case bytes.HasPrefix(head, []byte("RIFF")) && len(head) >= SniffLen && string(head[8:12]) == "WEBP":
	default:
		return "", false
	}
	switch bimg.DetermineImageType(head) {
	case bimg.JPEG:
		return job.JPEG, true
	case bimg.PNG:
		return job.PNG, true
	case bimg.WEBP:
		return job.WebP, true
	default:
		return "", false
	}
}

// Header is what the first bytes of a file tell about the picture.
type Header struct {
	Type          string // job.PNG, job.JPEG or job.WebP
	Width, Height int    // pixels, upright
	Frames        int    // more than 1: animated
	Alpha         bool
	Grey          bool
	Interlaced    bool // Adam7 PNG or progressive JPEG: decoding holds the whole frame a second time
	Lossless      bool // PNG and lossless WebP

	orientation int // 1 to 8, as EXIF counts
}

// Bands is the number of bands that Decode gives: 1 grey, 2 grey and alpha,
// 3 RGB, 4 RGB and alpha.
func (h Header) Bands() int {
	bands := 3
	if h.Grey {
		bands = 1
	}
	if h.Alpha {
		bands++
	}
	return bands
}

// ReadHeader reads what a file says about its picture without decoding any of
// it: the cost does not depend on the number of pixels. It returns an *Error
// for bytes that are no picture and for a colour profile that is none.
func ReadHeader(b []byte) (Header, error) {
	if err := Start(Config{}); err != nil {
		return Header{}, err
	}
	imageType, ok := Sniff(b)
	if !ok {
		return Header{}, &Error{Message: "The data is not a PNG, JPEG or WebP picture."}
	}

	var raw C.pictor_header
	result := C.pictor_read_header(unsafe.Pointer(&b[0]), C.size_t(len(b)), loader(imageType), &raw)
	runtime.KeepAlive(b)
	if result != 0 {
		return Header{}, blame(imageType, b, lastError())
	}
	defer C.g_free(C.gpointer(raw.profile))

	h := Header{
		Type:        imageType,
		Width:       int(raw.width),
		Height:      int(raw.height),
		Frames:      max(1, int(raw.frames)),
		Alpha:       raw.bands == 2 || raw.bands == 4,
		Grey:        raw.bands < 3,
		Interlaced:  raw.interlaced != 0,
		orientation: int(raw.orientation),
	}
	profile := C.GoBytes(raw.profile, C.int(raw.profile_size))
	switch imageType {
	case job.PNG:
		png := readPNGChunks(b)
		h.Frames, h.orientation, h.Lossless = png.frames, png.orientation, true
		if png.profile != nil {
			// libpng drops a profile that it does not like without a word.
			profile = png.profile
		}
	case job.WebP:
		h.Lossless = isLosslessWebP(b)
	}
	if err := checkProfile(profile); err != nil {
		return Header{}, &Error{
			Message: "The colour profile inside the " + name(imageType) + " is broken. Save the picture as sRGB, then send it again.",
			cause:   err,
		}
	}
	if h.orientation >= 5 {
		h.Width, h.Height = h.Height, h.Width
	}
	return h, nil
}

func loader(imageType string) C.int {
	switch imageType {
	case job.JPEG:
		return C.PICTOR_JPEG
	case job.PNG:
		return C.PICTOR_PNG
	default:
		return C.PICTOR_WEBP
	}
}

func name(imageType string) string {
	switch imageType {
	case job.JPEG:
		return "JPEG"
	case job.PNG:
		return "PNG"
	default:
		return "WebP picture"
	}
}

// blame is the Error for bytes that libvips could not read.
func blame(imageType string, b []byte, cause error) error {
	if isCutOff(imageType, b) {
		return &Error{Message: "The " + name(imageType) + " is cut off: part of the picture is missing.", cause: cause}
	}
	return &Error{Message: "The " + name(imageType) + " is damaged and cannot be decoded.", cause: cause}
}

// checkProfile refuses bytes that cannot be an ICC profile. No profile is fine.
func checkProfile(icc []byte) error {
	if len(icc) == 0 {
		return nil
	}
	const head, entry = 128 + 4, 12 // header and tag count, then the tag table
	if len(icc) < head || string(icc[36:40]) != "acsp" {
		return errors.New("no ICC profile header")
	}
	if size := be32(icc); size < head || size > len(icc) {
		return fmt.Errorf("ICC profile of %d bytes says that it has %d", len(icc), size)
	}
	tags := be32(icc[128:])
	if tags > 1000 || len(icc) < head+tags*entry {
		return fmt.Errorf("ICC profile of %d bytes says that it has %d tags", len(icc), tags)
	}
	for i := range tags {
		tag := icc[head+i*entry:]
		if from, size := be32(tag[4:]), be32(tag[8:]); from+size > len(icc) {
			return fmt.Errorf("ICC profile tag %q ends at byte %d of %d", tag[:4], from+size, len(icc))
		}
	}
	return nil
}
