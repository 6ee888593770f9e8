package vips

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"io"
	"iter"

	"pictor/internal/job"
)

const pngSignature = "\x89PNG\r\n\x1a\n"

// maxProfile bounds what a PNG's compressed colour profile may unpack to.
const maxProfile = 8 << 20

func be32(b []byte) int { return int(binary.BigEndian.Uint32(b)) }

// pngChunks are the complete chunks of a PNG, in order, without their checksums.
func pngChunks(b []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for b = b[min(len(b), len(pngSignature)):]; len(b) >= 12; {
			size := be32(b)
			if size > len(b)-12 || !yield(string(b[4:8]), b[8:8+size]) {
				return
			}
			b = b[12+size:]
		}
	}
}

// pngFacts is what libvips does not tell of a PNG.
type pngFacts struct {
	frames      int    // its loader sees the first frame of an animation only
	orientation int    // its loader knows no eXIf chunk before 8.16
	profile     []byte // nil: none
}

func readPNGChunks(b []byte) pngFacts {
	facts := pngFacts{frames: 1, orientation: 1}
	for kind, data := range pngChunks(b) {
		switch {
		case kind == "acTL" && len(data) >= 4:
			facts.frames = max(1, be32(data))
		case kind == "eXIf":
			facts.orientation = exifOrientation(data)
		case kind == "iCCP":
			facts.profile = inflateProfile(data)
		}
	}
	return facts
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
		for kind := range pngChunks(b) {
			if kind == "IEND" {
				return false
			}
		}
		return true
	case job.WebP:
		return len(b) < 12 || int(binary.LittleEndian.Uint32(b[4:]))+8 > len(b)
	default:
		return !bytes.Contains(b[max(0, len(b)-1024):], []byte("\xff\xd9"))
	}
}
