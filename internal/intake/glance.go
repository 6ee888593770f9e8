package intake

import (
	"bytes"
	"context"
	"image"
	"image/jpeg"
	"image/png"
	"io"

	"golang.org/x/image/webp"

	"pictor/internal/job"
	"pictor/internal/vips"
)

// glance is how much of an image Glance looks at.
const glance = 64 << 10

// Glance finds the fault of an image that is refused because of something else,
// when its beginning shows one. Of an ordinary image it reads no more than that;
// what it has a doubt about it reads whole.
func (in *Intake) Glance(ctx context.Context, task job.Task, s Source) error {
	image, err := in.from(ctx, task, s, in.glance)
	if image != nil {
		_ = image.Close()
	}
	return err
}

// glance is a take that gives no image of what is ordinary.
func (in *Intake) glance(ctx context.Context, task job.Task, r io.Reader, refuse func(error) error) (*Image, error) {
	head := make([]byte, glance)
	n, _ := io.ReadFull(r, head)
	if Ordinary(head[:n], task) {
		return nil, nil
	}
	return in.take(ctx, task, io.MultiReader(bytes.NewReader(head[:n]), r), refuse)
}

// Ordinary says that an image is fine by its beginning, in a tenth of the time
// that libvips takes. false: it has a fault, or needs a closer look. The faults
// that the beginning of an ordinary image does not show (all but its type and
// size) are not looked for.
func Ordinary(head []byte, task job.Task) bool {
	var size image.Config
	var err error
	switch kind, _ := vips.Sniff(head); kind {
	case job.JPEG:
		size, err = jpeg.DecodeConfig(bytes.NewReader(head))
	case job.PNG:
		if before, _, whole := bytes.Cut(head, []byte("IDAT")); !whole || bytes.Contains(before, []byte("acTL")) {
			return false // animated, or that is not known yet
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
