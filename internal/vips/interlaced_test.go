package vips_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/h2non/bimg"

	"pictor/internal/vips"
)

// interlace lays the rows of a plain PNG, packed and unfiltered, out in the
// seven passes that the PNG standard describes, by its pattern of 8 x 8 pixels.
// Each row has a filter of its own.
func interlace(width, bits int, rows [][]byte) []byte {
	pattern := [8]string{"16462646", "77777777", "56565656", "77777777", "36463646", "77777777", "56565656", "77777777"}
	var out []byte
	filter := 0
	for pass := byte('1'); pass <= '7'; pass++ {
		var above []byte
		for y, row := range rows {
			var packed []byte
			count := 0
			for x := range width {
				if pattern[y%8][x%8] != pass {
					continue
				}
				if bits >= 8 {
					packed = append(packed, row[x*bits/8:(x+1)*bits/8]...)
				} else {
					if count*bits%8 == 0 {
						packed = append(packed, 0)
					}
					value := row[x*bits/8] >> (8 - bits - x*bits%8) & (1<<bits - 1)
					packed[len(packed)-1] |= value << (8 - bits - count*bits%8)
				}
				count++
			}
			if count == 0 {
				continue
			}
			if above == nil {
				above = make([]byte, len(packed))
			}
			out = append(append(out, byte(filter)), filtered(byte(filter), packed, above, max(1, bits/8))...)
			filter = (filter + 1) % 5
			above = packed
		}
	}
	return out
}

func filtered(kind byte, row, above []byte, pixel int) []byte {
	out := make([]byte, len(row))
	for i, v := range row {
		var left, upLeft int
		if i >= pixel {
			left, upLeft = int(row[i-pixel]), int(above[i-pixel])
		}
		up := int(above[i])
		guess := left + up - upLeft
		paeth := upLeft
		far := func(v int) int { return max(guess-v, v-guess) }
		if far(left) <= far(up) && far(left) <= far(upLeft) {
			paeth = left
		} else if far(up) <= far(upLeft) {
			paeth = up
		}
		out[i] = v - byte([]int{0, left, up, (left + up) / 2, paeth}[kind])
	}
	return out
}

// interlacedPNG is rawPNG of the same rows in seven passes.
func interlacedPNG(t testing.TB, width, height, depth, colour int, rows [][]byte, chunks ...[]byte) []byte {
	t.Helper()
	bits := depth * map[int]int{0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
	return interlacedData(t, width, height, depth, colour, deflate(t, interlace(width, bits, rows)), chunks...)
}

// interlacedData is an interlaced PNG with whatever data, in chunks of 999
// bytes: no row ends where a chunk does.
func interlacedData(t testing.TB, width, height, depth, colour int, data []byte, chunks ...[]byte) []byte {
	t.Helper()
	head := binary.BigEndian.AppendUint32(nil, uint32(width))
	head = binary.BigEndian.AppendUint32(head, uint32(height))
	b := append([]byte("\x89PNG\r\n\x1a\n"), pngChunk("IHDR", append(head, byte(depth), byte(colour), 0, 0, 1))...)
	b = append(b, bytes.Join(chunks, nil)...)
	for len(data) > 0 {
		n := min(len(data), 999)
		b = append(b, pngChunk("IDAT", data[:n])...)
		data = data[n:]
	}
	return append(b, pngChunk("IEND", nil)...)
}

// noise are rows of random bits.
func noise(width, height, bits int) [][]byte {
	random := rand.New(rand.NewPCG(uint64(width), uint64(height*bits)))
	rows := make([][]byte, height)
	for y := range rows {
		rows[y] = make([]byte, (width*bits+7)/8)
		for x := range rows[y] {
			rows[y][x] = byte(random.Uint32())
		}
	}
	return rows
}

// The passes are taken apart here and not by libpng, which would hold them all.
func TestDecode_of_interlaced_PNG_equals_the_plain_one(t *testing.T) {
	t.Parallel()
	var palette []byte
	for i := range 256 {
		palette = append(palette, byte(i), byte(255-i), byte(i*7))
	}
	for name, kind := range map[string]struct {
		depth, colour int
		chunks        [][]byte
	}{
		"1-bit grey":               {1, 0, nil},
		"2-bit grey":               {2, 0, nil},
		"4-bit grey":               {4, 0, nil},
		"8-bit grey":               {8, 0, nil},
		"16-bit grey":              {16, 0, nil},
		"grey, one transparent":    {8, 0, [][]byte{pngChunk("tRNS", []byte{0, 8})}},
		"8-bit RGB":                {8, 2, nil},
		"16-bit RGB":               {16, 2, nil},
		"RGB, one transparent":     {8, 2, [][]byte{pngChunk("tRNS", []byte{0, 8, 0, 9, 0, 10})}},
		"RGB in Display P3":        {8, 2, [][]byte{profileChunk(t, displayP3().profile())}},
		"1-bit palette":            {1, 3, [][]byte{pngChunk("PLTE", palette[:6])}},
		"4-bit palette":            {4, 3, [][]byte{pngChunk("PLTE", palette[:48])}},
		"8-bit palette with alpha": {8, 3, [][]byte{pngChunk("PLTE", palette), pngChunk("tRNS", palette[:200])}},
		"8-bit grey with alpha":    {8, 4, nil},
		"16-bit grey with alpha":   {16, 4, nil},
		"8-bit RGB with alpha":     {8, 6, nil},
		"16-bit RGB with alpha":    {16, 6, nil},
		"16 bits in Adobe RGB":     {16, 6, [][]byte{profileChunk(t, adobeRGB().profile())}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bits := kind.depth * map[int]int{0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind.colour]
			for _, size := range [][2]int{{1, 1}, {2, 1}, {1, 2}, {3, 3}, {4, 5}, {5, 4}, {7, 9}, {8, 8}, {9, 17}, {1, 300}, {300, 1}, {131, 67}} {
				w, h := size[0], size[1]
				rows := noise(w, h, bits)
				want := decode(t, rawPNG(t, w, h, kind.depth, kind.colour, rows, kind.chunks...))
				b := interlacedPNG(t, w, h, kind.depth, kind.colour, rows, kind.chunks...)
				if head, err := vips.ReadHeader(b); err != nil || !head.Interlaced {
					t.Fatalf("header %+v, %v", head, err)
				}
				samePicture(t, want, decode(t, b), exact)
			}
		})
	}
	t.Run("of several strips", func(t *testing.T) {
		t.Parallel()
		const w, h = 555, 501 // its last pass alone is 1.1 MB
		rows := noise(w, h, 64)
		samePicture(t, decode(t, rawPNG(t, w, h, 16, 6, rows)), decode(t, interlacedPNG(t, w, h, 16, 6, rows)), exact)
	})
	for orientation := 1; orientation <= 8; orientation++ {
		t.Run(fmt.Sprint("orientation ", orientation), func(t *testing.T) {
			t.Parallel()
			want := withAlpha(cat(t))
			s := stored(want, orientation)
			var rows [][]byte
			for y := range s.Height {
				rows = append(rows, s.Pix[y*s.Width*4:][:s.Width*4])
			}
			b := interlacedPNG(t, s.Width, s.Height, 8, 6, rows, pngChunk("eXIf", exif(orientation, binary.BigEndian)))
			samePicture(t, want, decode(t, b), exact)
		})
	}
}

func TestDecode_refuses_a_broken_interlaced_PNG(t *testing.T) {
	t.Parallel()
	const w, h = 61, 43
	raw := interlace(w, 24, noise(w, h, 24))
	data := deflate(t, raw)
	good := interlacedData(t, w, h, 8, 2, data)
	decode(t, good)
	change := func(b []byte, at int) []byte {
		b = bytes.Clone(b)
		b[at] ^= 0x40
		return b
	}
	for name, row := range map[string]struct {
		b     []byte
		words string
	}{
		"too little data":        {interlacedData(t, w, h, 8, 2, deflate(t, raw[:len(raw)-1])), "PNG is"},
		"no data":                {interlacedData(t, w, h, 8, 2, nil), "PNG is"},
		"an unknown filter":      {interlacedData(t, w, h, 8, 2, deflate(t, change(raw, 0))), "PNG is damaged"},
		"a wrong bit":            {change(good, len(good)/2), "PNG is damaged"},
		"a wrong bit inside":     {interlacedData(t, w, h, 8, 2, change(data, len(data)/2)), "PNG is damaged"},
		"no deflate":             {interlacedData(t, w, h, 8, 2, raw), "PNG is damaged"},
		"data in two pieces":     {bytes.Replace(good, []byte("\x00\x00\x03\xe7IDAT"), append(pngChunk("tEXt", []byte("k\x00v")), "\x00\x00\x03\xe7IDAT"...), 2), ""},
		"no end mark":            {good[:len(good)-12], "is cut off"},
		"half of the last chunk": {good[:len(good)-40], "is cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if row.words != "" {
				refuseDecode(t, row.b, row.words)
				return
			}
			if _, err := vips.Decode(row.b); err == nil {
				t.Error("accepted")
			}
		})
	}
}

// The same picture in one pass and in several: the coefficients are the same,
// and so must be the pixels.
func TestDecode_of_progressive_JPEG_equals_the_plain_one(t *testing.T) {
	t.Parallel()
	rgb, beside := decode(t, photo(t, "chelsea.png")), exif(6, binary.BigEndian)
	muted := mapPixels(rgb, 3, func(_, _ int, c []byte) []byte { return []byte{64 + c[0]/2, 64 + c[1]/2, 64 + c[2]/2} })
	for name, row := range map[string]struct {
		picture *vips.Picture
		options bimg.Options
		change  func([]byte) []byte
	}{
		"colour halved":     {rgb, bimg.Options{Quality: 80}, bytes.Clone},
		"colour in full":    {rgb, bimg.Options{Quality: 95}, bytes.Clone},
		"grey":              {grey(rgb), bimg.Options{Quality: 90}, bytes.Clone},
		"one pixel":         {crop(rgb, 3, 3, 1, 1), bimg.Options{Quality: 80}, bytes.Clone},
		"one column":        {crop(rgb, 3, 0, 1, 300), bimg.Options{Quality: 80}, bytes.Clone},
		"one row":           {crop(rgb, 0, 3, 451, 1), bimg.Options{Quality: 80}, bytes.Clone},
		"CMYK":              {muted, bimg.Options{Quality: 90, InputICC: "srgb", OutputICC: "cmyk"}, bytes.Clone},
		"CMYK, no profile":  {muted, bimg.Options{Quality: 90, InputICC: "srgb", OutputICC: "cmyk", StripMetadata: true, NoProfile: true}, bytes.Clone},
		"in Display P3":     {rgb, bimg.Options{Quality: 90}, func(b []byte) []byte { return profileJPEG(b, displayP3().profile()) }},
		"on its side":       {rgb, bimg.Options{Quality: 90}, func(b []byte) []byte { return exifJPEG(b, beside) }},
		"on its side in P3": {rgb, bimg.Options{Quality: 70}, func(b []byte) []byte { return exifJPEG(profileJPEG(b, displayP3().profile()), beside) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row.options.Type, row.options.NoAutoRotate = bimg.JPEG, true
			source := asPNG(t, toImage(row.picture))
			plain, err := bimg.Resize(source, row.options)
			if err != nil {
				t.Fatal(err)
			}
			row.options.Interlace = true
			progressive, err := bimg.Resize(source, row.options)
			if err != nil {
				t.Fatal(err)
			}
			progressive = row.change(progressive)
			if head, err := vips.ReadHeader(progressive); err != nil || !head.Interlaced {
				t.Fatalf("header %+v, %v", head, err)
			}
			samePicture(t, decode(t, row.change(plain)), decode(t, progressive), exact)
		})
	}
}

// Where the folder for temporary files is gone or full, the picture is not to
// blame: the job is tried again.
func TestDecode_of_progressive_JPEG_reports_trouble_of_our_own(t *testing.T) {
	t.Parallel()
	b, err := bimg.Resize(photo(t, "chelsea.png"), bimg.Options{Type: bimg.JPEG, Interlace: true, NoAutoRotate: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = vips.DecodeContext(t.Context(), b, t.TempDir()+"/gone", nil)
	var blamed *vips.Error
	if err == nil || errors.As(err, &blamed) {
		t.Errorf("got %v, want an error that does not blame the picture", err)
	}
}

func TestDecode_ends_with_its_context_whatever_the_file(t *testing.T) {
	t.Parallel()
	for name, b := range slowPictures(t, 400, 400) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			decoded := make(chan error)
			go func() {
				_, err := vips.DecodeContext(ctx, b, t.TempDir(), nil)
				decoded <- err
			}()
			cancel()
			if err := <-decoded; err != nil && !errors.Is(err, context.Canceled) { // nil when it was faster
				t.Errorf("got %v, want context.Canceled", err)
			}
			if _, err := vips.DecodeContext(t.Context(), b, t.TempDir(), nil); err != nil {
				t.Errorf("cannot be decoded afterwards: %v", err)
			}
		})
	}
}

// 100 megapixels take seconds, during which a job's progress stood still.
func TestDecode_reports_growing_progress(t *testing.T) {
	t.Parallel()
	for name, b := range slowPictures(t, 400, 400) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []int
			if _, err := vips.DecodeContext(t.Context(), b, t.TempDir(), func(percent int) { got = append(got, percent) }); err != nil {
				t.Fatal(err)
			}
			if !slices.IsSorted(got) || len(got) < 4 || got[len(got)-1] > 100 {
				t.Errorf("reported %v", got)
			}
			for i := 1; i < len(got); i++ {
				if got[i]-got[i-1] > 50 {
					t.Errorf("reported %v: half of the work in one step", got)
				}
			}
		})
	}
}

// slowPictures are a noisy picture in every kind of file.
func slowPictures(t testing.TB, w, h int) map[string][]byte {
	t.Helper()
	p := noisy(w, h)
	plain := encodeJPEG(t, p, 80)
	var rows [][]byte
	for y := range h {
		rows = append(rows, p.Pix[y*w*3:][:w*3])
	}
	progressive, err := bimg.Resize(plain, bimg.Options{Type: bimg.JPEG, Interlace: true, Quality: 80, NoAutoRotate: true})
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		"JPEG": plain, "progressive JPEG": progressive, "PNG": asPNG(t, toImage(p)), "interlaced PNG": interlacedPNG(t, w, h, 8, 2, rows),
		"WebP": encodeWebP(t, p, vips.WebP{Quality: 80}), "lossless WebP": asWebP(t, p),
	}
}
