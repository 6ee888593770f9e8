package vips

// #include "pixels.h"
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"hash/crc32"
	"io"
	"slices"

	"github.com/klauspost/compress/zlib"
)

// adam7 are the passes of an interlaced PNG: each is a smaller picture of the
// pixels that begin at x, y and lie dx and dy apart.
var adam7 = [...]struct{ x, y, dx, dy int }{
	{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2},
}

// passStripBytes is how much of a pass goes to libpng at a time, unpacked.
const passStripBytes = 1 << 20

// errPassCutOff says that a pass of an interlaced PNG ends too early.
var errPassCutOff = errors.New("too little image data")

// decodeInterlaced decodes an interlaced PNG into the picture. libpng would need
// a second frame, of the file's depth: 800 MB for 100 megapixels of 16 bits with
// alpha. So libpng gets strips of the passes, as plain PNGs of their own, and
// their pixels go where they belong.
func (d *decoding) decodeInterlaced() error {
	data := &pngData{chunks: d.data[len(pngSignature):]}
	unpacked, err := zlib.NewReader(data)
	if err != nil {
		return d.blame(err)
	}
	defer unpacked.Close()
	depth, colour := int(d.png.head[24]), d.png.head[25]
	samples := [...]int{0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
	done := 0             // pixels
	var raw, plain []byte // one of each for all strips: garbage of this size would be collected late
	for _, pass := range adam7 {
		width := (d.width - pass.x + pass.dx - 1) / pass.dx
		height := (d.height - pass.y + pass.dy - 1) / pass.dy
		if width <= 0 || height <= 0 {
			continue
		}
		rows := passRows{from: unpacked, pixelBytes: max(1, samples*depth/8), above: make([]byte, (width*samples*depth+7)/8)}
		each := max(1, passStripBytes/len(rows.above))
		for y := 0; y < height; y += each {
			n := min(each, height-y)
			if raw, err = rows.take(n, raw); err != nil {
				return d.blame(err)
			}
			plain = storePNG(plain[:0], d.png.head, width, n, raw)
			to := d.layout
			to.origin += C.ptrdiff_t(pass.x)*to.dx + C.ptrdiff_t(pass.y+y*pass.dy)*to.dy
			to.dx *= C.ptrdiff_t(pass.dx)
			to.dy *= C.ptrdiff_t(pass.dy)
			if err := d.run(plain, to, width, n, nil, nil); err != nil {
				return err
			}
			if done += width * n; d.progress != nil {
				d.progress(done * 100 / (d.width * d.height))
			}
		}
	}
	// The checksum comes behind the last row. More rows than there should be do
	// no harm.
	if _, err := unpacked.Read(make([]byte, 1)); errors.Is(err, zlib.ErrChecksum) {
		return d.blame(err)
	}
	if isCutOff(d.Type, d.data) {
		return d.blame(errPassCutOff)
	}
	return nil
}

// pngData reads the image data of a PNG: what its IDAT chunks hold.
type pngData struct {
	chunks []byte // from the length of the next one
	data   []byte // what is left of the current one
	begun  bool
}

func (d *pngData) Read(p []byte) (int, error) {
	for len(d.data) == 0 {
		if len(d.chunks) < 12 {
			return 0, io.ErrUnexpectedEOF
		}
		size := be32(d.chunks)
		if size > len(d.chunks)-12 {
			return 0, io.ErrUnexpectedEOF
		}
		chunk := pngChunk(d.chunks[:size+12])
		d.chunks = d.chunks[size+12:]
		switch {
		case chunk.kind() == "IDAT":
			d.begun = true
			if crc32.ChecksumIEEE(chunk[4:8+size]) != binary.BigEndian.Uint32(chunk[8+size:]) {
				return 0, errors.New("wrong checksum of image data")
			}
			d.data = chunk.data()
		case d.begun: // the data of a picture lies in one piece
			return 0, errPassCutOff
		}
	}
	n := copy(p, d.data)
	d.data = d.data[n:]
	return n, nil
}

// passRows takes the filters off the rows of a pass.
type passRows struct {
	from       io.Reader
	pixelBytes int
	above      []byte // the row before the next one
}

// take puts the next n rows into the buffer, or a larger one, each behind a byte
// that says that it has no filter.
func (r *passRows) take(n int, buffer []byte) ([]byte, error) {
	line := 1 + len(r.above)
	buffer = slices.Grow(buffer[:0], n*line)[:n*line]
	if _, err := io.ReadFull(r.from, buffer); err != nil {
		return buffer, err
	}
	for rows := buffer; len(rows) > 0; rows = rows[line:] {
		row := rows[1:line]
		if !unfilter(rows[0], row, r.above, r.pixelBytes) {
			return buffer, fmt.Errorf("row filter %d", rows[0])
		}
		rows[0] = 0
		copy(r.above, row)
	}
	return buffer, nil
}

// unfilter undoes the filter of a row; false when there is no such filter.
func unfilter(kind byte, row, above []byte, pixelBytes int) bool {
	first := min(pixelBytes, len(row)) // these have nothing to their left
	switch kind {
	case 0:
	case 1: // Sub
		for i := first; i < len(row); i++ {
			row[i] += row[i-pixelBytes]
		}
	case 2: // Up
		for i, v := range above {
			row[i] += v
		}
	case 3: // Average
		for i := range first {
			row[i] += above[i] / 2
		}
		for i := first; i < len(row); i++ {
			row[i] += byte((int(row[i-pixelBytes]) + int(above[i])) / 2)
		}
	case 4: // Paeth
		for i := range first {
			row[i] += above[i]
		}
		for i := first; i < len(row); i++ {
			row[i] += paeth(row[i-pixelBytes], above[i], above[i-pixelBytes])
		}
	default:
		return false
	}
	return true
}

// paeth is the one of three neighbours that lies nearest to left + up - upLeft.
func paeth(left, up, upLeft byte) byte {
	toLeft, toUp := int(up)-int(upLeft), int(left)-int(upLeft)
	toUpLeft := toLeft + toUp
	toLeft, toUp, toUpLeft = max(toLeft, -toLeft), max(toUp, -toUp), max(toUpLeft, -toUpLeft)
	switch {
	case toLeft <= toUp && toLeft <= toUpLeft:
		return left
	case toUp <= toUpLeft:
		return up
	default:
		return upLeft
	}
}

// storePNG appends a plain PNG of rows without filters, not compressed. Besides
// its size it has the head of another one.
func storePNG(out, head []byte, width, height int, rows []byte) []byte {
	const (
		most   = 1<<16 - 1      // bytes in a stored block
		behind = 8 + 4 + 4 + 13 // the first chunk, less its checksum
		end    = "\x00\x00\x00\x00IEND\xae\x42\x60\x82"
	)
	head = head[:len(head)-len("\x00\x00\x00\x00IDAT\x35\xaf\x06\x1e"+end)]
	out = slices.Grow(out, len(head)+len(rows)+5*(len(rows)/most+1)+64)
	out = append(out, head...)
	binary.BigEndian.PutUint32(out[16:], uint32(width))
	binary.BigEndian.PutUint32(out[20:], uint32(height))
	out[28] = 0 // not interlaced
	binary.BigEndian.PutUint32(out[behind:], crc32.ChecksumIEEE(out[12:behind]))

	start := len(out)
	out = append(out, "\x00\x00\x00\x00IDAT\x78\x01"...)
	sum := adler32.Checksum(rows)
	for len(rows) > 0 {
		n := min(most, len(rows))
		last := byte(0)
		if n == len(rows) {
			last = 1
		}
		out = append(out, last, byte(n), byte(n>>8), byte(^n), byte(^n>>8))
		out = append(out, rows[:n]...)
		rows = rows[n:]
	}
	out = binary.BigEndian.AppendUint32(out, sum)
	binary.BigEndian.PutUint32(out[start:], uint32(len(out)-start-8))
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[start+4:]))
	return append(out, end...)
}
