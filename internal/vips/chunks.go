package vips

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"io"
	"iter"

	"pictor/internal/job"
)

const (
	pngSignature = "\x89PNG\r\n\x1a\n"
	jpegEnd      = "\xff\xd9"
)

// maxProfile bounds what a PNG's compressed colour profile may unpack to.
const maxProfile = 8 << 20

func be32(b []byte) int { return int(binary.BigEndian.Uint32(b)) }

// pngChunk is a whole chunk of a PNG, from its length to its checksum.
type pngChunk []byte

func (c pngChunk) kind() string { return string(c[4:8]) }
func (c pngChunk) data() []byte { return c[8 : len(c)-4] }

// makesPixels says whether the chunk takes part in the picture.
func (c pngChunk) makesPixels() bool {
	switch c.kind() {
	case "IHDR", "PLTE", "tRNS", "IDAT", "IEND", "iCCP", "sRGB", "gAMA", "cHRM":
		return true
	}
	return false
}

// pngChunks are the whole chunks of a PNG, in order, to the last one.
func pngChunks(b []byte) iter.Seq[pngChunk] {
	return func(yield func(pngChunk) bool) {
		for b = b[min(len(b), len(pngSignature)):]; len(b) >= 12; {
			size := be32(b) + 12
			if size > len(b) || !yield(pngChunk(b[:size])) || string(b[4:8]) == "IEND" {
				return
			}
			b = b[size:]
		}
	}
}

// pngFacts is what a PNG tells besides what libvips reads of it.
type pngFacts struct {
	head        []byte // all that the header needs, and no pixels
	frames      int    // libvips sees an animation's first frame alone
	orientation int
	profile     []byte // nil: none
}

func readPNG(b []byte) pngFacts {
	f := pngFacts{head: []byte(pngSignature), frames: 1, orientation: 1}
	pixels := false
	for chunk := range pngChunks(b) {
		switch chunk.kind() {
		case "IDAT":
			pixels = true
		case "acTL":
			if len(chunk.data()) >= 4 {
				f.frames = max(1, be32(chunk.data()))
			}
		case "eXIf":
			f.orientation = exifOrientation(chunk.data())
		case "iCCP":
			f.profile = inflateProfile(chunk.data())
		}
		if !pixels && chunk.makesPixels() {
			f.head = append(f.head, chunk...)
		}
	}
	f.head = append(f.head, "\x00\x00\x00\x00IDAT\x35\xaf\x06\x1e\x00\x00\x00\x00IEND\xae\x42\x60\x82"...)
	return f
}

// safePNG is the PNG as it may be shown to libpng: b itself when it is whole
// and has no compressed texts, else without the chunks that make no pixels.
//
// libpng unpacks each text while it looks for the picture: 100 of them, 50 KB
// each in the file, took 5 GB. And for a chunk that says it has a gigabyte it
// clears a gigabyte before it looks whether the file goes on.
func safePNG(b []byte) []byte {
	whole, compressed := false, false
	for chunk := range pngChunks(b) {
		switch chunk.kind() {
		case "IEND":
			whole = true
		case "zTXt", "iTXt":
			compressed = true
		}
	}
	if whole && !compressed {
		return b
	}
	safe := append(make([]byte, 0, len(b)), pngSignature...)
	for chunk := range pngChunks(b) {
		if chunk.makesPixels() {
			safe = append(safe, chunk...)
		}
	}
	return safe
}

// inflateProfile unpacks an iCCP chunk. What cannot be unpacked comes back as
// bytes that are no profile.
func inflateProfile(chunk []byte) []byte {
	broken := []byte{0}
	_, packed, ok := bytes.Cut(chunk, []byte{0}) // the profile's name, then one byte for the method
	if !ok || len(packed) < 1 {
		return broken
	}
	unpacked, err := zlib.NewReader(bytes.NewReader(packed[1:]))
	if err != nil {
		return broken
	}
	profile, err := io.ReadAll(io.LimitReader(unpacked, maxProfile))
	if err != nil || len(profile) == 0 {
		return broken
	}
	return profile
}

// exifOrientation finds tag 0x0112 in the first directory of EXIF data; 1, the
// upright orientation, when there is none that makes sense.
func exifOrientation(tiff []byte) int {
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(tiff, []byte("II*\x00")):
		order = binary.LittleEndian
	case bytes.HasPrefix(tiff, []byte("MM\x00*")):
		order = binary.BigEndian
	default:
		return 1
	}
	if len(tiff) < 8 {
		return 1
	}
	directory := int(order.Uint32(tiff[4:]))
	if directory > len(tiff)-2 {
		return 1
	}
	const entry = 12
	fields := tiff[directory+2:]
	for range order.Uint16(tiff[directory:]) {
		if len(fields) < entry {
			break
		}
		const short = 3
		if order.Uint16(fields) == 0x0112 && order.Uint16(fields[2:]) == short {
			if value := int(order.Uint16(fields[8:])); value >= 1 && value <= 8 {
				return value
			}
			break
		}
		fields = fields[entry:]
	}
	return 1
}

// isLosslessWebP says whether the (first) frame of a WebP is stored without loss.
func isLosslessWebP(b []byte) bool {
	for b = b[min(len(b), 12):]; len(b) >= 8; {
		size := int(binary.LittleEndian.Uint32(b[4:]))
		size += size & 1
		switch string(b[:4]) {
		case "VP8L":
			return true
		case "VP8 ", "ANMF":
			return false
		}
		if size > len(b)-8 {
			break
		}
		b = b[8+size:]
	}
	return false
}

// isCutOff says whether a file ends before its own end mark.
func isCutOff(imageType string, b []byte) bool {
	switch imageType {
	case job.PNG:
		for chunk := range pngChunks(b) {
			if chunk.kind() == "IEND" {
				return false
			}
		}
		return true
	case job.WebP:
		return len(b) < 12 || int(binary.LittleEndian.Uint32(b[4:]))+8 > len(b)
	default:
		return !bytes.Contains(b[max(0, len(b)-1024):], []byte(jpegEnd))
	}
}
