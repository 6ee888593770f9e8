package vips_test

import (
	"testing"

	"github.com/h2non/bimg"
)

// bimgPNG is the PNG that libvips writes at level 6 with all filters, as bimg
// has it do.
func bimgPNG(t testing.TB, b []byte) []byte {
	t.Helper()
	out, err := bimg.Resize(b, bimg.Options{Type: bimg.PNG, Compression: 6, NoAutoRotate: true, StripMetadata: true})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
