package vips_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/h2non/bimg"

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
		interlacedPNG(f, 19, 21, 8, 6, noise(19, 21, 32)), interlacedPNG(f, 19, 21, 16, 0, noise(19, 21, 16), profileChunk(f, greyProfile(1.8))),
		interlacedPNG(f, 19, 21, 1, 3, noise(19, 21, 1), pngChunk("PLTE", make([]byte, 6)), pngChunk("tRNS", []byte{3})),
		asBimg(f, asPNG(f, toImage(rgb)), bimg.Options{Interlace: true}), asBimg(f, asPNG(f, toImage(grey(rgb))), bimg.Options{Interlace: true}),
		asBimg(f, asPNG(f, toImage(rgb)), bimg.Options{Interlace: true, OutputICC: "cmyk", InputICC: "srgb", NoProfile: true, StripMetadata: true}),
		extendWebP(encodeWebP(f, side, vips.WebP{Quality: 50}), side.Width, side.Height, false, nil, exif(8, binary.LittleEndian)),
	} {
		f.Add(b)
	}
	f.Fuzz(decodesOrBlames)
}

// FuzzProfile puts anything in the place of a colour profile, where only lcms
// knows what is meant: files that are damaged as a whole rarely get that far.
func FuzzProfile(f *testing.F) {
	rgb := crop(cat(f), 0, 0, 5, 4)
	png, webp, jpeg, grey := asPNG(f, toImage(rgb)), asWebP(f, rgb), asJPEG(f, toImage(rgb)), asJPEG(f, toImage(grey(rgb)))
	wide := rawPNG(f, 5, 4, 16, 6, noise(5, 4, 64))
	cmyk := asBimg(f, png, bimg.Options{OutputICC: "cmyk", InputICC: "srgb"})
	bare := asBimg(f, png, bimg.Options{OutputICC: "cmyk", InputICC: "srgb", NoProfile: true, StripMetadata: true})
	at := bytes.Index(cmyk, []byte("ICC_PROFILE\x00"))
	f.Add(cmyk[at+14:][:min(len(cmyk)-at-14, 60_000)])
	for _, icc := range [][]byte{displayP3().profile(), adobeRGB().profile(), sRGB().profile(), greyProfile(1.8), iccProfile("CMYK", "prtr", map[string][]byte{})} {
		f.Add(icc)
	}
	f.Fuzz(func(t *testing.T, icc []byte) {
		if len(icc) > 60_000 { // a JPEG splits longer ones
			return
		}
		for _, b := range [][]byte{
			insertPNG(png, profileChunk(t, icc)), insertPNG(wide, profileChunk(t, icc)), extendWebP(webp, 5, 4, false, icc, nil),
			profileJPEG(jpeg, icc), profileJPEG(grey, icc), profileJPEG(bare, icc),
		} {
			decodesOrBlames(t, b)
		}
	})
}

// FuzzExif puts anything in the place of EXIF data.
func FuzzExif(f *testing.F) {
	rgb := crop(cat(f), 0, 0, 5, 4)
	png, webp, jpeg := asPNG(f, toImage(rgb)), asWebP(f, rgb), asJPEG(f, toImage(rgb))
	for orientation := 0; orientation <= 9; orientation++ {
		f.Add(exif(orientation, binary.BigEndian))
		f.Add(exif(orientation, binary.LittleEndian))
	}
	f.Fuzz(func(t *testing.T, tiff []byte) {
		if len(tiff) > 60_000 {
			return
		}
		for _, b := range [][]byte{insertPNG(png, pngChunk("eXIf", tiff)), extendWebP(webp, 5, 4, false, nil, tiff), exifJPEG(jpeg, tiff)} {
			decodesOrBlames(t, b)
			if h, err := vips.ReadHeader(b); err != nil || h.Width*h.Height != 20 {
				t.Fatalf("%+v, %v: data about the camera must not refuse a picture", h, err)
			}
		}
	})
}

// FuzzChunk puts a chunk of any kind, whole and with its checksum, into plain
// and interlaced PNGs.
func FuzzChunk(f *testing.F) {
	rgb := crop(cat(f), 0, 0, 5, 4)
	pictures := [][]byte{
		asPNG(f, toImage(rgb)), interlacedPNG(f, 5, 4, 8, 2, noise(5, 4, 24)), interlacedPNG(f, 5, 4, 16, 4, noise(5, 4, 32)),
		rawPNG(f, 5, 4, 2, 3, noise(5, 4, 2), pngChunk("PLTE", make([]byte, 12))),
	}
	for _, kind := range []string{"IHDR", "PLTE", "tRNS", "IDAT", "IEND", "iCCP", "sRGB", "gAMA", "cHRM", "tEXt", "zTXt", "iTXt", "acTL", "fcTL", "eXIf", "bKGD", "sBIT", "pHYs", "hIST", "sPLT"} {
		f.Add(kind, []byte{0, 0, 0, 5, 0, 0, 0, 4, 8, 2, 0, 0, 0})
		f.Add(kind, append([]byte("k\x00\x00"), deflate(f, []byte("text"))...))
	}
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		if len(kind) != 4 || len(data) > 60_000 {
			return
		}
		for _, b := range pictures {
			decodesOrBlames(t, insertPNG(b, pngChunk(kind, data)))
		}
	})
}

// asBimg re-encodes a picture as a JPEG.
func asBimg(t testing.TB, b []byte, as bimg.Options) []byte {
	t.Helper()
	as.Type, as.NoAutoRotate = bimg.JPEG, true
	out, err := bimg.Resize(b, as)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// decodesOrBlames checks that there are pixels that fit the header, or an error
// that blames the picture.
func decodesOrBlames(t *testing.T, b []byte) {
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
}
