package vips

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/flate"
)

// PNGOptions is how a PNGWriter compresses. The zero value is a good choice.
type PNGOptions struct {
	Level   int // 1, the fastest, to 9; 0 is 4
	Threads int // strips that are compressed at the same time; 0 is 1
}

// PNGWriter writes an 8-bit sRGB PNG from rows that are pushed into it. Its
// memory depends neither on the height nor on the size of the file: rows are
// gathered into strips, which are filtered and compressed side by side and
// written in their order. The strips' deflate blocks, each flushed to a whole
// byte, join into the one zlib stream that PNG wants.
//
// A PNGWriter that is dropped without Close leaves nothing running.
type PNGWriter struct {
	w        io.Writer
	opt      PNGOptions
	rowBytes int
	bands    int
	height   int

	rows    int      // taken so far
	filling *strip   // nil until the next row comes
	running []*strip // being compressed, oldest first
	idle    []*strip
	above   []byte // the last row of the strip before filling
	sum     uint32 // adler32 of everything written
	err     error  // the first one; nothing is written after it
}

// stripBytes is how much one strip gathers. Smaller strips compress worse,
// because none looks back into the one before it.
const stripBytes = 1 << 20

// strip is some rows on their way through the compressor.
type strip struct {
	above      []byte // the row before the first; zeros above the picture
	rows       []byte
	first      bool // begins the zlib stream
	last       bool // ends it
	filtered   []byte
	compressed bytes.Buffer
	sum        uint32 // adler32 of filtered
	deflate    *flate.Writer
	err        error
	done       chan struct{}
}

// NewPNGWriter writes the head of a PNG. Bands are those of Picture.
func NewPNGWriter(w io.Writer, width, height, bands int, opt PNGOptions) (*PNGWriter, error) {
	if width < 1 || height < 1 || width > 1<<30 || height > 1<<30 || bands < 1 || bands > 4 {
		return nil, fmt.Errorf("write PNG: no picture has %d x %d pixels of %d bands", width, height, bands)
	}
	if opt.Level == 0 {
		opt.Level = 4
	}
	opt.Threads = max(1, opt.Threads)
	p := &PNGWriter{w: w, opt: opt, rowBytes: width * bands, bands: bands, height: height, sum: 1}
	p.above = make([]byte, p.rowBytes)

	if _, err := io.WriteString(w, pngSignature); err != nil {
		return nil, fmt.Errorf("write PNG: %w", err)
	}
	head := binary.BigEndian.AppendUint32(nil, uint32(width))
	head = binary.BigEndian.AppendUint32(head, uint32(height))
	colour := [...]byte{1: 0, 2: 4, 3: 2, 4: 6}[bands]
	head = append(head, 8, colour, 0, 0, 0)
	p.writeChunk("IHDR", head)
	p.writeChunk("sRGB", []byte{0}) // perceptual; viewers without colour management skip it
	return p, p.err
}

// WriteRows takes the next rows, any number of whole ones. It copies what it
// needs: pix is the caller's again when it returns.
func (p *PNGWriter) WriteRows(pix []byte) error {
	if p.err == nil && (len(pix)%p.rowBytes != 0 || p.rows+len(pix)/p.rowBytes > p.height) {
		p.err = fmt.Errorf("write PNG: %d bytes are no whole rows of %d, or more than the %d that are left",
			len(pix), p.rowBytes, p.height-p.rows)
	}
	for len(pix) > 0 && p.err == nil {
		if p.filling == nil {
			p.filling = p.takeStrip()
		}
		s := p.filling
		n := min(len(pix), cap(s.rows)-len(s.rows))
		s.rows = append(s.rows, pix[:n]...)
		pix = pix[n:]
		p.rows += n / p.rowBytes
		if len(s.rows) == cap(s.rows) || p.rows == p.height {
			p.compress(p.rows == p.height)
		}
	}
	return p.err
}

// Close finishes the file. It does not close the io.Writer. Without all the
// rows it returns an error, and the file is broken.
func (p *PNGWriter) Close() error {
	if p.err == nil && p.rows < p.height {
		p.err = fmt.Errorf("write PNG: closed after %d of %d rows", p.rows, p.height)
	}
	for len(p.running) > 0 && p.err == nil {
		p.writeOldest()
	}
	if p.err == nil {
		p.writeChunk("IEND", nil)
	}
	if p.err != nil {
		return p.err
	}
	p.err = errors.New("write PNG: closed")
	return nil
}

func (p *PNGWriter) takeStrip() *strip {
	if n := len(p.idle); n > 0 {
		s := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return s
	}
	rows := min(p.height, max(1, stripBytes/p.rowBytes))
	s := &strip{
		above:    make([]byte, p.rowBytes),
		rows:     make([]byte, 0, rows*p.rowBytes),
		filtered: make([]byte, 0, rows*(1+p.rowBytes)),
	}
	s.compressed.Grow(rows * p.rowBytes) // growing piece by piece would leave as much again behind
	return s
}

// compress sends the strip that is being filled on its way, once fewer than
// opt.Threads are.
func (p *PNGWriter) compress(last bool) {
	for len(p.running) >= p.opt.Threads && p.err == nil {
		p.writeOldest()
	}
	s := p.filling
	p.filling = nil
	copy(s.above, p.above)
	copy(p.above, s.rows[len(s.rows)-p.rowBytes:])
	s.first, s.last = p.rows*p.rowBytes == len(s.rows), last
	s.done = make(chan struct{})
	p.running = append(p.running, s)
	go func() {
		defer close(s.done)
		s.err = s.run(p.rowBytes, p.bands, p.opt.Level)
	}()
}

func (p *PNGWriter) writeOldest() {
	s := p.running[0]
	p.running = p.running[1:]
	<-s.done
	if s.err != nil {
		p.err = fmt.Errorf("write PNG: compress: %w", s.err)
		return
	}
	p.sum = joinAdler32(p.sum, s.sum, len(s.filtered))
	if s.last {
		s.compressed.Write(binary.BigEndian.AppendUint32(nil, p.sum))
	}
	p.writeChunk("IDAT", s.compressed.Bytes())
	s.rows = s.rows[:0]
	p.idle = append(p.idle, s)
}

// run filters and compresses the strip.
func (s *strip) run(rowBytes, bands, level int) error {
	s.filtered = filterRows(s.filtered[:0], s.rows, s.above, bands)
	s.sum = adler32.Checksum(s.filtered)
	s.compressed.Reset()
	if s.first {
		s.compressed.WriteString("\x78\x9c") // deflate, 32 KiB window
	}
	if s.deflate == nil {
		deflate, err := flate.NewWriter(&s.compressed, level)
		if err != nil {
			return err
		}
		s.deflate = deflate
	} else {
		s.deflate.Reset(&s.compressed)
	}
	if _, err := s.deflate.Write(s.filtered); err != nil {
		return err
	}
	if s.last {
		return s.deflate.Close()
	}
	return s.deflate.Flush()
}

func (p *PNGWriter) writeChunk(kind string, data []byte) {
	chunk := append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), kind...)
	sum := crc32.Update(crc32.ChecksumIEEE([]byte(kind)), crc32.IEEETable, data)
	for _, b := range [][]byte{chunk, data, binary.BigEndian.AppendUint32(nil, sum)} {
		if _, err := p.w.Write(b); err != nil {
			p.err = fmt.Errorf("write PNG: %w", err)
			return
		}
	}
}

// joinAdler32 is the checksum of two pieces of data of which the second has n
// bytes, out of the checksums of both.
func joinAdler32(first, second uint32, n int) uint32 {
	const prime = 65521
	length := uint32(n % prime)
	a1, b1 := first&0xffff, first>>16
	a2, b2 := second&0xffff, second>>16
	// Both sums begin at a=1: the joined one must count that once.
	a := (a1 + a2 + prime - 1) % prime
	b := (length*a1%prime + b1 + b2 + prime - length) % prime
	return b<<16 | a
}
