package vips_test

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/job"
	"pictor/internal/vips"
)

func TestSniff_knows_three_types_by_their_first_bytes(t *testing.T) {
	t.Parallel()
	for head, want := range map[string]string{
		"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01":             job.JPEG,
		"\xff\xd8\xff\xdb\x00\x43\x00\x03\x02\x02\x02\x03": job.JPEG,
		"\x89PNG\r\n\x1a\n\x00\x00\x00\x0d":                job.PNG,
		"RIFF\x10\x00\x00\x00WEBP":                         job.WebP,
		"RIFF\x10\x00\x00\x00WAVE":                         "",
		"RIFF\x10\x00\x00\x00WEB":                          "",
		"\x89PNG\n\x1a\n\x00\x00\x00\x0d\x00":              "",
		"\xff\xd8\xff":                                     "",
		"GIF89a\x01\x00\x01\x00\x00\x00":                   "",
		"II*\x00\x08\x00\x00\x00\x00\x00\x00\x00":          "",
		"%PDF-1.7\n%\xe2\xe3\xcf":                          "",
		"<svg xmlns='http://www.w3.org/2000/svg'></svg>":   "",
		"\x00\x00\x00\x1cftypheic\x00\x00\x00\x00":         "",
		"\x00\x00\x00\x1cftypavif\x00\x00\x00\x00":         "",
		"BM\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00":       "",
		"": "",
	} {
		got, ok := vips.Sniff([]byte(head))
		if got != want || ok != (want != "") {
			t.Errorf("Sniff(%q) = %q, %v; want %q", head, got, ok, want)
		}
	}
}

func TestReadHeader(t *testing.T) {
	t.Parallel()
	rgb := cat(t)
	s := stored(rgb, 6)
	rotated := exif(6, binary.BigEndian)
	for name, row := range map[string]struct {
		b    []byte
		want vips.Header
	}{
		"PNG":            {asPNG(t, toImage(rgb)), vips.Header{Type: job.PNG, Width: 157, Height: 103, Frames: 1, Lossless: true}},
		"PNG with alpha": {asPNG(t, toImage(withAlpha(rgb))), vips.Header{Type: job.PNG, Width: 157, Height: 103, Frames: 1, Alpha: true, Lossless: true}},
		"grey PNG":       {asPNG(t, toImage(grey(rgb))), vips.Header{Type: job.PNG, Width: 157, Height: 103, Frames: 1, Grey: true, Lossless: true}},
		"turned PNG": {
			insertPNG(asPNG(t, toImage(s)), pngChunk("eXIf", rotated)),
			vips.Header{Type: job.PNG, Width: 157, Height: 103, Frames: 1, Lossless: true},
		},
		"APNG": {
			insertPNG(asPNG(t, toImage(rgb)), pngChunk("acTL", []byte{0, 0, 0, 7, 0, 0, 0, 0})),
			vips.Header{Type: job.PNG, Width: 157, Height: 103, Frames: 7, Lossless: true},
		},
		"APNG of one frame": {
			insertPNG(asPNG(t, toImage(rgb)), pngChunk("acTL", []byte{0, 0, 0, 1, 0, 0, 0, 0})),
			vips.Header{Type: job.PNG, Width: 157, Height: 103, Frames: 1, Lossless: true},
		},
		"JPEG":            {asJPEG(t, toImage(rgb)), vips.Header{Type: job.JPEG, Width: 157, Height: 103, Frames: 1}},
		"grey JPEG":       {asJPEG(t, toImage(grey(rgb))), vips.Header{Type: job.JPEG, Width: 157, Height: 103, Frames: 1, Grey: true}},
		"turned JPEG":     {exifJPEG(asJPEG(t, toImage(s)), rotated), vips.Header{Type: job.JPEG, Width: 157, Height: 103, Frames: 1}},
		"photographs":     {photo(t, "astronaut-orientation-6.jpg"), vips.Header{Type: job.JPEG, Width: 320, Height: 426, Frames: 1}},
		"WebP":            {photo(t, "coffee.webp"), vips.Header{Type: job.WebP, Width: 600, Height: 400, Frames: 1}},
		"WebP with alpha": {photo(t, "coffee-alpha.webp"), vips.Header{Type: job.WebP, Width: 345, Height: 300, Frames: 1, Alpha: true}},
		"lossless WebP":   {asWebP(t, rgb), vips.Header{Type: job.WebP, Width: 157, Height: 103, Frames: 1, Lossless: true}},
		"turned WebP": {
			extendWebP(asWebP(t, s), s.Width, s.Height, false, nil, rotated),
			vips.Header{Type: job.WebP, Width: 157, Height: 103, Frames: 1, Lossless: true},
		},
		"animated WebP": {animateWebP(asWebP(t, rgb), 157, 103, 3), vips.Header{Type: job.WebP, Width: 157, Height: 103, Frames: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := vips.ReadHeader(row.b)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
