package vips_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/h2non/bimg"

	"pictor/internal/vips"
)

// refuse checks that an error blames the picture with a sentence that holds
// the given words, and that the library's words are not in it.
func refuse(t *testing.T, err error, words string) {
	t.Helper()
	var e *vips.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an error that blames the picture with %q", err, words)
	}
	if !strings.Contains(e.Message, words) || !strings.HasSuffix(e.Message, ".") || strings.ContainsAny(e.Message, "\n_") || strings.Contains(strings.ToLower(e.Message), "vips") {
		t.Errorf("message %q, want a sentence with %q", e.Message, words)
	}
}

func refuseHeader(t *testing.T, b []byte, words string) {
	t.Helper()
	_, err := vips.ReadHeader(b)
	refuse(t, err, words)
	refuseDecode(t, b, words)
}

func refuseDecode(t *testing.T, b []byte, words string) {
	t.Helper()
	_, err := vips.Decode(b)
	refuse(t, err, words)
}

// libvips can load dozens of types, some of them by programs of their own. None
// is reached, not even by bimg: what is not needed cannot be attacked.
func TestStart_leaves_three_loaders(t *testing.T) {
	t.Parallel()
	if err := vips.Start(vips.Config{}); err != nil {
		t.Fatal(err)
	}
	dot := asPNG(t, toImage(crop(cat(t), 0, 0, 8, 8)))
	tiff, err := bimg.Resize(dot, bimg.Options{Type: bimg.TIFF, NoAutoRotate: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"TIFF": tiff,
		"GIF":  []byte("GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"),
		"SVG":  []byte(`<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><rect width="8" height="8"/></svg>`),
		"PDF":  []byte("%PDF-1.1\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj\ntrailer<</Root 1 0 R>>"),
	} {
		if _, err := bimg.Resize(b, bimg.Options{Type: bimg.PNG, NoAutoRotate: true}); err == nil {
			t.Errorf("%s was loaded", name)
		}
	}
	if _, err := bimg.Resize(dot, bimg.Options{Type: bimg.PNG, NoAutoRotate: true}); err != nil {
		t.Errorf("PNG was not loaded: %v", err)
	}
}

func TestDecode_refuses_what_is_no_picture(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "\xff\xd8\xff", "hello, world, this is text", "GIF89a\x01\x00\x01\x00\x80\x00\x00", "<svg width='1' height='1'></svg>"} {
		refuseHeader(t, []byte(s), "not a PNG, JPEG or WebP")
	}
	// Signatures with nothing, or with rubbish, behind them.
	rubbish := bytes.Repeat([]byte("rubbish "), 100)
	refuseHeader(t, append([]byte("\xff\xd8\xff\xe0"), rubbish...), "JPEG is")
	refuseHeader(t, append([]byte("\x89PNG\r\n\x1a\n"), rubbish...), "PNG is")
	refuseHeader(t, append([]byte("RIFF\x10\x00\x00\x00WEBP"), rubbish...), "WebP picture is")
	refuseHeader(t, []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d"), "cut off")
}

func TestDecode_refuses_a_cut_off_file(t *testing.T) {
	t.Parallel()
	rgb := cat(t)
	interlaced, err := bimg.Resize(photo(t, "chelsea.png"), bimg.Options{Type: bimg.PNG, Interlace: true, NoAutoRotate: true})
	if err != nil {
		t.Fatal(err)
	}
	progressive, err := bimg.Resize(photo(t, "chelsea.png"), bimg.Options{Type: bimg.JPEG, Interlace: true, NoAutoRotate: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"PNG": asPNG(t, toImage(rgb)), "JPEG": asJPEG(t, toImage(rgb)), "WebP": asWebP(t, rgb), "lossy WebP": photo(t, "coffee.webp"),
		"photograph": photo(t, "rocket.jpg"), "interlaced PNG": interlaced, "progressive JPEG": progressive,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, percent := range []int{1, 10, 50, 90, 99} {
				refuseDecode(t, b[:len(b)*percent/100], "is cut off")
			}
		})
	}
}

// Many programs forget the end mark; every viewer shows such a JPEG.
func TestDecode_accepts_a_JPEG_without_its_end_mark(t *testing.T) {
	t.Parallel()
	b := photo(t, "astronaut.jpg")
	samePicture(t, decode(t, b), decode(t, b[:len(b)-2]), exact)
}

// Some cameras leave bytes behind the last block. libjpeg warns of them.
func TestDecode_accepts_a_JPEG_with_bytes_to_spare(t *testing.T) {
	t.Parallel()
	b := photo(t, "astronaut.jpg")
	odd := append(bytes.Clone(b[:len(b)-2]), 0, 0, 0, 0, 0xff, 0xd9)
	samePicture(t, decode(t, b), decode(t, odd), exact)
	samePicture(t, decode(t, b), decode(t, append(bytes.Clone(b), "and more behind the end"...)), exact)
}

func TestDecode_refuses_a_damaged_file(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	garbage := func(b []byte, from, to int) []byte {
		b = bytes.Clone(b)
		for i := len(b) * from / 100; i < len(b)*to/100; i++ {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	zeros := func(b []byte, from, to int) []byte {
		b = bytes.Clone(b)
		clear(b[len(b)*from/100 : len(b)*to/100])
		return b
	}
	png, webp := asPNG(t, toImage(cat(t))), photo(t, "coffee.webp")
	refuseDecode(t, garbage(png, 40, 60), "PNG is damaged")
	refuseDecode(t, zeros(png, 40, 60), "PNG is damaged")
	lossless := asWebP(t, cat(t))
	refuseDecode(t, garbage(lossless, 40, 60), "WebP picture is damaged")

	// libvips calls these good pictures and logs a warning: the lower half is
	// grey or noise.
	jpeg := photo(t, "rocket.jpg")
	for _, b := range [][]byte{garbage(jpeg, 40, 60), garbage(jpeg, 60, 90), zeros(jpeg, 40, 60), append(bytes.Clone(jpeg[:len(jpeg)/2]), 0xff, 0xd9)} {
		refuseDecode(t, b, "JPEG is")
	}
	refuseHeader(t, garbage(webp, 0, 0)[:20], "WebP picture is cut off")

	t.Run("one wrong bit in a checked PNG", func(t *testing.T) {
		t.Parallel()
		b := bytes.Clone(png)
		b[len(b)/2] ^= 0x10
		refuseDecode(t, b, "PNG is damaged")
	})
}

func TestDecode_refuses_animation(t *testing.T) {
	t.Parallel()
	rgb := cat(t)
	refuseDecode(t, animateWebP(asWebP(t, rgb), rgb.Width, rgb.Height, 2), "animated")
	dot := crop(rgb, 0, 0, 1, 1)
	refuseDecode(t, animateWebP(asWebP(t, dot), 1, 1, 10_001), "animated") // libvips counts that as one
	refuseDecode(t, insertPNG(asPNG(t, toImage(rgb)), pngChunk("acTL", []byte{0, 0, 0, 2, 0, 0, 0, 0})), "animated")
	samePicture(t, rgb, decode(t, animateWebP(asWebP(t, rgb), rgb.Width, rgb.Height, 1)), exact)
}

func TestReadHeader_refuses_an_absurd_colour_profile(t *testing.T) {
	t.Parallel()
	rgb := cat(t)
	good := displayP3().profile()
	change := func(at int, bytes ...byte) []byte {
		icc := append([]byte{}, good...)
		copy(icc[at:], bytes)
		return icc
	}
	for name, icc := range map[string][]byte{
		"noise":            bytes.Repeat([]byte("noise"), 100),
		"one byte":         {7},
		"cut off":          good[:len(good)/2],
		"no signature":     change(36, 'x'),
		"too many tags":    change(128, 0xff, 0xff, 0xff, 0xff),
		"tag behind end":   change(132+4, 0x7f),
		"endless tag":      change(132+8, 0xff, 0xff, 0xff, 0xff),
		"smaller than its": change(0, 0, 0, 0, 12),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refuseHeader(t, profileJPEG(asJPEG(t, toImage(rgb)), icc), "colour profile")
			refuseHeader(t, insertPNG(asPNG(t, toImage(rgb)), profileChunk(t, icc)), "colour profile")
			refuseHeader(t, extendWebP(asWebP(t, rgb), rgb.Width, rgb.Height, false, icc, nil), "colour profile")
		})
	}
	t.Run("not even packed", func(t *testing.T) {
		t.Parallel()
		for _, chunk := range []string{"", "no end", "name\x00", "name\x00\x00not zlib"} {
			refuseHeader(t, insertPNG(asPNG(t, toImage(rgb)), pngChunk("iCCP", []byte(chunk))), "colour profile")
		}
	})
	t.Run("a bomb", func(t *testing.T) {
		t.Parallel()
		refuseHeader(t, insertPNG(asPNG(t, toImage(rgb)), profileChunk(t, make([]byte, 100<<20))), "colour profile")
	})
}

// bombs say that they have 900 megapixels or more, in a few kilobytes.
func bombs(t testing.TB) map[string][]byte {
	rgb := cat(t)
	patch := func(b []byte, at int, width, height uint16, order binary.ByteOrder) []byte {
		b = bytes.Clone(b)
		order.PutUint16(b[at:], width)
		order.PutUint16(b[at+2:], height)
		return b
	}
	jpeg := asJPEG(t, toImage(rgb))
	frame := bytes.Index(jpeg, []byte{0xff, 0xc0, 0, 17, 8}) + 5
	progressive, err := bimg.Resize(photo(t, "chelsea.png"), bimg.Options{Type: bimg.JPEG, Interlace: true, NoAutoRotate: true})
	if err != nil {
		t.Fatal(err)
	}
	progressiveFrame := bytes.Index(progressive, []byte{0xff, 0xc2, 0, 17, 8}) + 5
	interlaced := rawPNG(t, 30000, 30000, 8, 6, [][]byte{make([]byte, 1<<20)})
	interlaced[28] = 1
	head := pngChunk("IHDR", interlaced[16:29])
	copy(interlaced[8:], head)
	return map[string][]byte{
		"PNG":              rawPNG(t, 30000, 30000, 1, 0, [][]byte{make([]byte, 30000*(30000/8+1))}),
		"16-bit PNG":       rawPNG(t, 30000, 30000, 16, 6, [][]byte{make([]byte, 1<<20)}),
		"interlaced PNG":   interlaced,
		"JPEG":             patch(jpeg, frame, 60000, 60000, binary.BigEndian),
		"progressive JPEG": patch(progressive, progressiveFrame, 60000, 60000, binary.BigEndian),
		"WebP":             extendWebP(asWebP(t, rgb), 16383, 16383, false, nil, nil),
	}
}

// peakMemory is the most that the process ever held, in bytes.
func peakMemory(t testing.TB) int {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "darwin" {
		return int(usage.Maxrss)
	}
	return int(usage.Maxrss) << 10
}

// Not parallel: it looks at how much memory the whole process takes.
func TestReadHeader_of_a_bomb_decodes_nothing(t *testing.T) {
	for name, b := range bombs(t) {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			held := peakMemory(t)
			for range 10 {
				h, err := vips.ReadHeader(b)
				if err == nil && h.Width*h.Height < 200e6 {
					t.Fatalf("the header says %+v: no bomb", h)
				}
				_, err = vips.Decode(b)
				var e *vips.Error
				if !errors.As(err, &e) {
					t.Fatalf("got %v, want a refusal", err)
				}
			}
			runtime.ReadMemStats(&after)
			if took := (after.TotalAlloc - before.TotalAlloc) / 20; took > 1<<20 {
				t.Errorf("a refusal allocates %d bytes in Go", took)
			}
			if grown := peakMemory(t) - held; grown > 32<<20 {
				t.Errorf("refusals took %d bytes", grown)
			}
		})
	}
}

// Each of these texts unpacks to 50 MB, and libpng keeps 100 of them: 5 GB for
// a PNG of 5 MB, before the first pixel. Not parallel: see above.
func TestReadHeader_never_unpacks_the_texts_of_a_PNG(t *testing.T) {
	rgb := cat(t)
	text := pngChunk("zTXt", append([]byte("k\x00\x00"), deflate(t, make([]byte, 40<<20))...))
	var chunks [][]byte
	for range 90 {
		chunks = append(chunks, text)
	}
	b := insertPNG(asPNG(t, toImage(rgb)), chunks...)
	before := peakMemory(t)
	if _, err := vips.ReadHeader(b); err != nil {
		t.Fatal(err)
	}
	samePicture(t, rgb, decode(t, b), exact)
	if grown := peakMemory(t) - before; grown > 32<<20 {
		t.Errorf("decoding took %d bytes", grown)
	}
}

// Found by fuzzing: 150 bytes that announce a text of a gigabyte took a
// gigabyte and seconds. Not parallel: see above.
func TestDecode_believes_no_chunk_of_a_PNG_that_is_longer_than_the_file(t *testing.T) {
	png := asPNG(t, toImage(cat(t)))
	for _, kind := range []string{"tEXt", "zTXt", "iTXt", "sPLT", "eXIf", "iCCP", "unKn", "IDAT", "PLTE"} {
		before := peakMemory(t)
		refuseDecode(t, insertPNG(png, append([]byte("\x40\x00\x00\x00"), kind...)), "is cut off")
		if grown := peakMemory(t) - before; grown > 32<<20 {
			t.Errorf("%s: took %d bytes", kind, grown)
		}
	}
}

// A JPEG may say in a few bytes "this pass changes nothing", thousands of
// times, and each costs a walk over the whole frame.
func TestReadHeader_refuses_a_JPEG_of_thousands_of_passes(t *testing.T) {
	t.Parallel()
	b, err := bimg.Resize(photo(t, "chelsea.png"), bimg.Options{Type: bimg.JPEG, Interlace: true, NoAutoRotate: true})
	if err != nil {
		t.Fatal(err)
	}
	end := len(b) - 2
	last := bytes.LastIndex(b, []byte{0xff, 0xda})
	endless := bytes.Clone(b[:end])
	for range 3000 {
		endless = append(endless, b[last:last+20]...)
	}
	refuseHeader(t, append(endless, 0xff, 0xd9), "passes")
}

func TestErrors_of_one_picture_never_reach_another(t *testing.T) {
	t.Parallel()
	good, bad := photo(t, "astronaut.jpg"), photo(t, "rocket.jpg")
	bad = bad[:len(bad)/2]
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			for range 5 {
				refuseDecode(t, bad, "is cut off")
				decode(t, good)
			}
		})
	}
}
