package render

import (
	"context"
	"fmt"
	"io"
	"os"

	"pictor/internal/job"
	"pictor/internal/tempfile"
	"pictor/internal/vips"
)

const (
	jpegQuality = 92
	webpQuality = 90
	webpEffort  = 1
)

// Largest sides and sizes that a type can hold. libwebp fails on large
// pictures below its own limit, after all the work.
const (
	webpSide   = 16383
	webpPixels = 100_000_000
	jpegSide   = 65500
)

// outputType is the type of a result of w x h pixels: the input's, where it can
// hold it, else PNG for what has alpha or is beyond JPEG, else JPEG.
func outputType(input string, w, h int, alpha bool) string {
	side := max(w, h)
	switch {
	case input == job.PNG,
		input == job.WebP && side <= webpSide && w*h <= webpPixels,
		input == job.JPEG && side <= jpegSide:
		return input
	case alpha || side > jpegSide:
		return job.PNG
	default:
		return job.JPEG
	}
}

// encoder takes the rows of a result and writes it in its type.
type encoder interface {
	WriteRows(pix []byte) error
	// Close completes the result, and reports how many percent of that is done.
	Close(ctx context.Context, progress func(percent int)) error
	discard() // frees what the encoder holds, after Close or instead of it
}

func (r *Renderer) encoder(result Result, bands int, lossless bool, out io.Writer) (encoder, error) {
	if result.Type == job.PNG {
		w, err := vips.NewPNGWriter(out, result.Width, result.Height, bands, vips.PNGOptions{Threads: r.threads})
		return pngEncoder{w}, err
	}
	raw, err := tempfile.Unnamed(r.dir, "pictor-render-")
	if err != nil {
		return nil, fmt.Errorf("open a file for the enlarged pixels: %w", err)
	}
	return &fileEncoder{result: result, bands: bands, lossless: lossless, raw: raw, dir: r.dir, out: out}, nil
}

type pngEncoder struct{ *vips.PNGWriter }

func (e pngEncoder) Close(context.Context, func(percent int)) error { return e.PNGWriter.Close() }

func (pngEncoder) discard() {}

// fileEncoder gathers the pixels in a file, because libvips reads what it
// encodes and cannot be fed.
type fileEncoder struct {
	result   Result
	bands    int
	lossless bool
	raw      *os.File
	dir      string
	out      io.Writer
}

func (e *fileEncoder) WriteRows(pix []byte) error {
	_, err := e.raw.Write(pix)
	return err
}

func (e *fileEncoder) Close(ctx context.Context, progress func(percent int)) error {
	encoded, err := tempfile.Unnamed(e.dir, "pictor-render-")
	if err != nil {
		return fmt.Errorf("open a file for the encoded picture: %w", err)
	}
	defer encoded.Close()
	raw := vips.RawFile{Path: path(e.raw), Width: e.result.Width, Height: e.result.Height, Bands: e.bands}
	if e.result.Type == job.JPEG {
		err = vips.EncodeJPEG(ctx, raw, path(encoded), jpegQuality, progress)
	} else {
		err = vips.EncodeWebP(ctx, raw, path(encoded), vips.WebP{Quality: webpQuality, Effort: webpEffort, Lossless: e.lossless}, progress)
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(e.out, encoded)
	return err
}

func (e *fileEncoder) discard() { e.raw.Close() }

// path names an open file without a name, for code that opens by name.
func path(f *os.File) string { return fmt.Sprintf("/dev/fd/%d", f.Fd()) }
