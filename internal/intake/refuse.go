package intake

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"net/http"

	"golang.org/x/image/webp"

	"pictor/internal/job"
	"pictor/internal/vips"
)

// glance is how much of an image Refuse looks at, and reads at a time.
const glance = 64 << 10

// Refuse reads an image that is refused because of something else, and costs no
// more than that: no byte is hashed or stored. A fault of the image goes before
// the given one. Faults that the beginning of an ordinary image does not show
// (all but its type and size) are not looked for.
func (in *Intake) Refuse(ctx context.Context, task job.Task, r io.Reader, because error) error {
	buffer := in.buffer()
	defer in.buffers.Put(buffer)
	n, _ := io.ReadFull(r, *buffer)
	if !ordinary((*buffer)[:n], task) {
		image, err := in.Read(ctx, task, io.MultiReader(bytes.NewReader((*buffer)[:n]), r))
		if err != nil {
			return err
		}
		_ = image.Close()
		return because
	}
	for read := int64(n); ; {
		n, err := r.Read(*buffer)
		read += int64(n)
		var limit *http.MaxBytesError
		switch {
		case read > job.MaxImageBytes, errors.As(err, &limit):
			return tooLarge()
		case err == io.EOF:
			return because
		case err != nil:
			return unreadable(err)
		}
	}
}

// ordinary says that an image is fine by its beginning, in a tenth of the time
// that libvips takes. false: it has a fault, or needs a closer look.
func ordinary(head []byte, task job.Task) bool {
	var size image.Config
	var err error
	switch kind, _ := vips.Sniff(head); kind {
	case job.JPEG:
		size, err = jpeg.DecodeConfig(bytes.NewReader(head))
	case job.PNG:
		if before, _, _ := bytes.Cut(head, []byte("IDAT")); bytes.Contains(before, []byte("acTL")) {
			return false // animated
		}
		size, err = png.DecodeConfig(bytes.NewReader(head))
	case job.WebP:
		if i := bytes.Index(head[:min(len(head), 64)], []byte("VP8X")); i >= 0 && len(head) > i+8 && head[i+8]&2 != 0 {
			return false // animated
		}
		size, err = webp.DecodeConfig(bytes.NewReader(head))
	default:
		return false
	}
	return err == nil && suits(vips.Header{Width: size.Width, Height: size.Height, Frames: 1}, task) == nil
}

// buffer is for in.buffers to take back.
func (in *Intake) buffer() *[]byte {
	if b, ok := in.buffers.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, glance)
	return &b
}
