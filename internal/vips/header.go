package vips

// #include "pixels.h"
import "C"

import (
	"bytes"
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

// Header is what a file tells about its picture before it is decoded.
type Header struct {
	Type          string // job.PNG, job.JPEG or job.WebP
	Width, Height int    // pixels, upright
	Frames        int    // more than 1: animated
	Alpha         bool
	Grey          bool
	Interlaced    bool // Adam7 PNG, or JPEG of several passes
	Lossless      bool // PNG, or lossless WebP
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
// for bytes that are no picture, or that show already here that they are
// broken or made to do harm.
func ReadHeader(b []byte) (Header, error) {
	f, err := inspect(b)
	return f.Header, err
}

// facts is the Header and what decoding needs besides.
type facts struct {
	Header
	orientation int    // 1 to 8, as EXIF counts
	profile     []byte // ICC, checked; empty for none
	png         pngFacts
}

// maxScans bounds the passes over a JPEG's whole frame. Encoders make about
// ten; a small file with thousands would keep a processor busy for minutes.
const maxScans = 100

func inspect(b []byte) (facts, error) {
	if err := Start(Config{}); err != nil {
		return facts{}, err
	}
	imageType, ok := Sniff(b)
	if !ok {
		return facts{}, &Error{Message: "The data is not a PNG, JPEG or WebP picture."}
	}
	head := b
	var png pngFacts
	if imageType == job.PNG {
		png = readPNG(b)
		head = png.head
	}

	var c C.pictor_header
	result := C.pictor_read_header(unsafe.Pointer(&head[0]), C.size_t(len(head)), loader(imageType), &c)
	runtime.KeepAlive(head)
	if result != 0 {
		return facts{}, blame(imageType, b, lastError())
	}
	defer C.g_free(C.gpointer(c.profile))
	f := facts{
		Header: Header{
			Type:       imageType,
			Width:      int(c.width),
			Height:     int(c.height),
			Frames:     max(1, int(c.frames)),
			Alpha:      c.bands == 2 || c.bands == 4,
			Grey:       c.bands < 3,
			Interlaced: c.interlaced != 0,
		},
		orientation: int(c.orientation),
		png:         png,
	}
	profile := C.GoBytes(c.profile, C.int(c.profile_size))
	switch imageType {
	case job.PNG:
		f.Lossless, f.Frames, f.orientation, profile = true, png.frames, png.orientation, png.profile
	case job.WebP:
		f.Lossless = isLosslessWebP(b)
	case job.JPEG:
		if !f.Interlaced {
			break
		}
		// Coded data never holds these two bytes: they begin a scan, save for
		// the few of a thumbnail.
		if scans := bytes.Count(b, []byte("\xff\xda")); scans > maxScans {
			return facts{}, &Error{Message: fmt.Sprintf("The JPEG is made of %d passes, more than any camera or program writes.", scans)}
		}
	}
	if err := checkProfile(profile); err != nil {
		return facts{}, &Error{
			Message: "The colour profile inside the " + name(imageType) + " is broken. Save the picture as sRGB, then send it again.",
			cause:   err,
		}
	}
	f.profile = profile
	if f.orientation >= 5 {
		f.Width, f.Height = f.Height, f.Width
	}
	return f, nil
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
