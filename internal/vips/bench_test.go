package vips_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image/jpeg"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/h2non/bimg"

	"pictor/internal/testkit/cputime"
	"pictor/internal/vips"
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

// large is a photograph repeated to 12 megapixels.
func large(t testing.TB) *vips.Picture {
	t.Helper()
	from := decode(t, photo(t, "astronaut.jpg"))
	p := &vips.Picture{Width: 4032, Height: 3024, Bands: from.Bands}
	for y := range p.Height {
		row := from.Pix[y%from.Height*from.Width*3:][:from.Width*3]
		for left := p.Width * 3; left > 0; left -= len(row) {
			p.Pix = append(p.Pix, row[:min(left, len(row))]...)
		}
	}
	return p
}

// BenchmarkDecode reports the processor time of 12 megapixels as a ratio to
// what another decoder of the same process takes for the plain file.
func BenchmarkDecode(b *testing.B) {
	p := large(b)
	plain := encodeJPEG(b, p, 90)
	for name, data := range map[string][]byte{
		"JPEG":                         plain,
		"JPEG on its side":             exifJPEG(plain, exif(6, binary.BigEndian)),
		"JPEG in Display P3":           profileJPEG(plain, displayP3().profile()),
		"JPEG in Display P3, on side":  exifJPEG(profileJPEG(plain, displayP3().profile()), exif(6, binary.BigEndian)),
		"JPEG in sRGB":                 profileJPEG(plain, sRGB().profile()),
		"PNG":                          pngOf(b, p),
		"PNG in Adobe RGB, with alpha": insertPNG(pngOf(b, withAlpha(p)), profileChunk(b, adobeRGB().profile())),
		"WebP":                         encodeWebP(b, p, vips.WebP{Quality: 90}),
	} {
		b.Run(name, func(b *testing.B) {
			floor := cputime.Used(b)
			const floors = 3
			for range floors {
				if _, err := jpeg.Decode(bytes.NewReader(plain)); err != nil {
					b.Fatal(err)
				}
			}
			floor = (cputime.Used(b) - floor) / floors
			from := cputime.Used(b)
			for b.Loop() {
				decode(b, data)
			}
			each := (cputime.Used(b) - from) / time.Duration(b.N)
			b.ReportMetric(each.Seconds()*1000, "cpu-ms/op")
			b.ReportMetric(each.Seconds()/floor.Seconds(), "x-image/jpeg")
		})
	}
}

// BenchmarkDecode_cancelled reports how long 12 megapixels go on being decoded
// after a tenth of them, when nobody wants them any more.
func BenchmarkDecode_cancelled(b *testing.B) {
	for name, data := range slowPictures(b, 4000, 3000) {
		b.Run(name, func(b *testing.B) {
			var after time.Duration
			for b.Loop() {
				ctx, cancel := context.WithCancel(b.Context())
				var from time.Duration
				_, err := vips.DecodeContext(ctx, data, b.TempDir(), func(percent int) {
					if percent >= 10 && from == 0 {
						from = cputime.Used(b)
						cancel()
					}
				})
				if !errors.Is(err, context.Canceled) {
					b.Fatalf("got %v, want context.Canceled", err)
				}
				after += cputime.Used(b) - from
				cancel()
			}
			b.ReportMetric(after.Seconds()*1000/float64(b.N), "cpu-ms-after")
		})
	}
}

// BenchmarkReadHeader must not depend on the number of pixels.
func BenchmarkReadHeader(b *testing.B) {
	pictures := map[string][]byte{
		"JPEG of 12 megapixels": encodeJPEG(b, large(b), 90), "PNG of 12 megapixels": pngOf(b, large(b)), "JPEG of 0.3": photo(b, "rocket.jpg"),
	}
	for name, data := range bombs(b) {
		pictures["bomb: "+name] = data
	}
	for name, data := range pictures {
		b.Run(name, func(b *testing.B) {
			from := cputime.Used(b)
			for b.Loop() {
				_, _ = vips.ReadHeader(data) // some bombs are refused
			}
			b.ReportMetric((cputime.Used(b)-from).Seconds()*1000/float64(b.N), "cpu-ms/op")
		})
	}
}

func pngOf(t testing.TB, p *vips.Picture) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := writePNG(t, &out, p, 64, vips.PNGOptions{Threads: 2}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// BenchmarkPNGWriter reports processor time and size as ratios to libvips at
// level 6 with all filters, which is what bimg does.
func BenchmarkPNGWriter(b *testing.B) {
	p := large(b)
	source := encodeJPEG(b, p, 95)
	from := cputime.Used(b)
	theirs := bimgPNG(b, source)
	floor := cputime.Used(b) - from
	from = cputime.Used(b)
	decoded := decode(b, source)
	floor -= cputime.Used(b) - from // bimg decodes, too
	for _, level := range []int{1, 4, 6} {
		b.Run("level "+string(rune('0'+level)), func(b *testing.B) {
			counted := &counter{}
			from := cputime.Used(b)
			for b.Loop() {
				counted.n = 0
				if err := writePNG(b, counted, decoded, 64, vips.PNGOptions{Level: level, Threads: 2}); err != nil {
					b.Fatal(err)
				}
			}
			each := (cputime.Used(b) - from) / time.Duration(b.N)
			b.ReportMetric(each.Seconds()*1000, "cpu-ms/op")
			b.ReportMetric(each.Seconds()/floor.Seconds(), "x-cpu-libvips")
			b.ReportMetric(float64(counted.n)/float64(len(theirs)), "x-size-libvips")
		})
	}
}

type counter struct{ n int }

func (c *counter) Write(b []byte) (int, error) {
	c.n += len(b)
	return len(b), nil
}

// BenchmarkMemory reports the memory of the process after one picture of 12
// megapixels and after all of them: the second must not grow with their number.
func BenchmarkMemory(b *testing.B) {
	pictures := [][]byte{encodeJPEG(b, large(b), 90), pngOf(b, large(b)), encodeWebP(b, large(b), vips.WebP{Quality: 90})}
	for _, picture := range pictures {
		decode(b, picture)
	}
	first := residentMemory(b)
	for i := 0; b.Loop(); i++ {
		decode(b, pictures[i%len(pictures)])
	}
	b.ReportMetric(first, "first-MB")
	b.ReportMetric(residentMemory(b), "last-MB")
}

// residentMemory is what the process holds, in megabytes, once Go has given
// back what it does not need.
func residentMemory(t testing.TB) float64 {
	t.Helper()
	debug.FreeOSMemory()
	var total, resident int
	b, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(b), &total, &resident)
	}
	if err != nil {
		t.Fatal(err)
	}
	return float64(resident*os.Getpagesize()) / (1 << 20)
}
