package vips_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"pictor/internal/vips"
)

// FuzzDecode feeds the decoder with anything: it must answer with pixels that
// fit the header, or blame the picture, and never crash.
func FuzzDecode(f *testing.F) {
	rgb := crop(cat(f), 0, 0, 19, 21)
	side := stored(rgb, 6)
	for _, b := range [][]byte{
		asPNG(f, toImage(rgb)), asPNG(f, toImage(withAlpha(rgb))), asPNG(f, toImage(grey(rgb))),
		asJPEG(f, toImage(rgb)), asJPEG(f, toImage(grey(rgb))), asWebP(f, rgb), encodeWebP(f, withAlpha(rgb), vips.WebP{Quality: 50}),
		insertPNG(asPNG(f, toImage(side)), profileChunk(f, displayP3().profile()), pngChunk("eXIf", exif(6, binary.BigEndian))),
		exifJPEG(profileJPEG(asJPEG(f, toImage(side)), adobeRGB().profile()), exif(6, binary.BigEndian)),
		extendWebP(asWebP(f, side), side.Width, side.Height, false, displayP3().profile(), exif(6, binary.LittleEndian)),
		animateWebP(asWebP(f, rgb), rgb.Width, rgb.Height, 2),
		insertPNG(asPNG(f, toImage(rgb)), pngChunk("zTXt", append([]byte("k\x00\x00"), deflate(f, []byte("text"))...))),
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := vips.ReadHeader(b)
		if err == nil && h.Width*h.Height > 4_000_000 {
			return // right or wrong, but slow
		}
		p, decodeErr := vips.Decode(b)
		if decodeErr != nil {
			var e *vips.Error
			if !errors.As(decodeErr, &e) || e.Message == "" {
				t.Fatalf("%v blames no picture", decodeErr)
			}
			return
		}
		if err != nil {
			t.Fatalf("decoded, although the header is refused: %v", err)
		}
		if p.Width != h.Width || p.Height != h.Height || p.Bands != h.Bands() || len(p.Pix) != p.Width*p.Height*p.Bands {
			t.Fatalf("decoded %d x %d of %d bands into %d bytes, header %+v", p.Width, p.Height, p.Bands, len(p.Pix), h)
		}
	})
}
