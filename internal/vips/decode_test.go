package vips_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/h2non/bimg"

	"pictor/internal/job"
	"pictor/internal/vips"
)

// lossy is what JPEG at quality 97 with halved colour costs a photograph.
var lossy = tolerance{worst: 60, mean: 2.5, shift: 0.5}

func TestDecode_gives_the_pixels_of_each_type(t *testing.T) {
	t.Parallel()
	rgb := cat(t)
	for name, want := range map[string]*vips.Picture{
		"grey": grey(rgb), "grey and alpha": withAlpha(grey(rgb)), "RGB": rgb, "RGB and alpha": withAlpha(rgb),
	} {
		t.Run("PNG "+name, func(t *testing.T) {
			t.Parallel()
			b := asPNG(t, toImage(want))
			if want.Bands == 2 { // Go's encoder knows no grey with alpha
				var rows [][]byte
				for y := range want.Height {
					rows = append(rows, want.Pix[y*want.Width*2:][:want.Width*2])
				}
				b = rawPNG(t, want.Width, want.Height, 8, 4, rows)
			}
			samePicture(t, want, decode(t, b), exact)
		})
		t.Run("lossless WebP "+name, func(t *testing.T) {
			t.Parallel()
			want := want
			if want.Bands < 3 { // WebP knows no grey
				want = fromImage(toImage(want), want.Bands+2)
			}
			got := decode(t, asWebP(t, want))
			if want.Bands == 4 { // and has the colour of transparent pixels as it likes
				want, got = mapPixels(want, 4, hideTransparent), mapPixels(got, 4, hideTransparent)
			}
			samePicture(t, want, got, exact)
		})
	}
	t.Run("JPEG grey", func(t *testing.T) {
		t.Parallel()
		samePicture(t, grey(rgb), decode(t, asJPEG(t, toImage(grey(rgb)))), tolerance{worst: 10, mean: 1, shift: 0.3})
	})
	t.Run("JPEG RGB", func(t *testing.T) {
		t.Parallel()
		samePicture(t, rgb, decode(t, asJPEG(t, toImage(rgb))), lossy)
	})
}

func hideTransparent(_, _ int, c []byte) []byte {
	if c[3] == 0 {
		return make([]byte, 4)
	}
	return bytes.Clone(c)
}

func TestDecode_of_photographs_agrees_with_other_decoders(t *testing.T) {
	t.Parallel()
	for name, allowed := range map[string]tolerance{
		"chelsea.png": exact, "camera.png": exact, "cup.png": exact,
		"astronaut.jpg": {worst: 40, mean: 0.6, shift: 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := photo(t, name)
			m, _, err := image.Decode(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			got := decode(t, b)
			samePicture(t, fromImage(m, got.Bands), got, allowed)
		})
	}
}

func TestDecode_of_16_bits_1_bit_and_palettes(t *testing.T) {
	t.Parallel()
	rgb := cat(t)
	area := image.Rect(0, 0, rgb.Width, rgb.Height)
	// 16 bits that are not just the 8 bits twice, but nearest to them.
	wide := func(v byte, x, y int) uint16 {
		return uint16(max(0, min(65535, int(v)*257+(x*7+y)%257-128)))
	}

	t.Run("16-bit grey", func(t *testing.T) {
		t.Parallel()
		want := grey(rgb)
		m := image.NewGray16(area)
		for i, v := range want.Pix {
			m.SetGray16(i%rgb.Width, i/rgb.Width, color.Gray16{Y: wide(v, i, 0)})
		}
		samePicture(t, want, decode(t, asPNG(t, m)), exact)
	})
	t.Run("16-bit RGB with alpha", func(t *testing.T) {
		t.Parallel()
		want := withAlpha(rgb)
		m := image.NewNRGBA64(area)
		for i := range want.Width * want.Height {
			x, y, c := i%rgb.Width, i/rgb.Width, want.Pix[4*i:]
			m.SetNRGBA64(x, y, color.NRGBA64{R: wide(c[0], x, y), G: wide(c[1], x, y), B: wide(c[2], x, y), A: wide(c[3], x, y)})
		}
		samePicture(t, want, decode(t, asPNG(t, m)), exact)
	})
	t.Run("16-bit grey with alpha", func(t *testing.T) {
		t.Parallel()
		want := withAlpha(grey(rgb))
		var rows [][]byte
		for y := range want.Height {
			var row []byte
			for x, v := range want.Pix[y*want.Width*2:][:want.Width*2] {
				row = binary.BigEndian.AppendUint16(row, wide(v, x, y))
			}
			rows = append(rows, row)
		}
		samePicture(t, want, decode(t, rawPNG(t, want.Width, want.Height, 16, 4, rows)), exact)
	})
	t.Run("1-bit grey", func(t *testing.T) {
		t.Parallel()
		want := &vips.Picture{Width: 11, Height: 2, Bands: 1, Pix: []byte{
			255, 0, 255, 255, 0, 0, 0, 255, 255, 0, 0,
			0, 255, 0, 0, 255, 255, 255, 0, 0, 255, 0,
		}}
		got := decode(t, rawPNG(t, 11, 2, 1, 0, [][]byte{{0b10110001, 0b10000000}, {0b01001110, 0b01000000}}))
		samePicture(t, want, got, exact)
	})
	t.Run("2-bit and 4-bit grey", func(t *testing.T) {
		t.Parallel()
		samePicture(t, &vips.Picture{Width: 4, Height: 1, Bands: 1, Pix: []byte{0, 85, 170, 255}},
			decode(t, rawPNG(t, 4, 1, 2, 0, [][]byte{{0b00011011}})), exact)
		samePicture(t, &vips.Picture{Width: 3, Height: 1, Bands: 1, Pix: []byte{17, 0, 238}},
			decode(t, rawPNG(t, 3, 1, 4, 0, [][]byte{{0x10, 0xe0}})), exact)
	})
	palette := pngChunk("PLTE", []byte{250, 10, 20, 30, 240, 50, 60, 70, 230})
	t.Run("palette", func(t *testing.T) {
		t.Parallel()
		want := &vips.Picture{Width: 3, Height: 1, Bands: 3, Pix: []byte{60, 70, 230, 250, 10, 20, 30, 240, 50}}
		samePicture(t, want, decode(t, rawPNG(t, 3, 1, 8, 3, [][]byte{{2, 0, 1}}, palette)), exact)
	})
	t.Run("palette with alpha", func(t *testing.T) {
		t.Parallel()
		want := &vips.Picture{Width: 3, Height: 1, Bands: 4, Pix: []byte{60, 70, 230, 255, 250, 10, 20, 0, 30, 240, 50, 128}}
		b := rawPNG(t, 3, 1, 2, 3, [][]byte{{0b10000100}}, palette, pngChunk("tRNS", []byte{0, 128}))
		samePicture(t, want, decode(t, b), exact)
	})
	t.Run("one transparent grey", func(t *testing.T) {
		t.Parallel()
		want := &vips.Picture{Width: 3, Height: 1, Bands: 2, Pix: []byte{9, 255, 8, 0, 7, 255}}
		samePicture(t, want, decode(t, rawPNG(t, 3, 1, 8, 0, [][]byte{{9, 8, 7}}, pngChunk("tRNS", []byte{0, 8}))), exact)
	})
}

// stored lays an upright picture out as a camera of that orientation stores it.
// The EXIF standard names for each orientation which side of the scene the
// stored rows begin at, and which side each row begins at.
func stored(upright *vips.Picture, orientation int) *vips.Picture {
	s := &vips.Picture{Width: upright.Width, Height: upright.Height, Bands: upright.Bands}
	if orientation >= 5 {
		s.Width, s.Height = s.Height, s.Width
	}
	right, bottom := upright.Width-1, upright.Height-1
	for row := range s.Height {
		for column := range s.Width {
			var x, y int
			switch orientation {
			case 1: // row 0 is the top, column 0 the left
				x, y = column, row
			case 2: // top, right
				x, y = right-column, row
			case 3: // bottom, right
				x, y = right-column, bottom-row
			case 4: // bottom, left
				x, y = column, bottom-row
			case 5: // left, top
				x, y = row, column
			case 6: // right, top
				x, y = right-row, column
			case 7: // right, bottom
				x, y = right-row, bottom-column
			case 8: // left, bottom
				x, y = row, bottom-column
			}
			from := (y*upright.Width + x) * upright.Bands
			s.Pix = append(s.Pix, upright.Pix[from:from+upright.Bands]...)
		}
	}
	return s
}

func TestDecode_turns_every_orientation_upright_once(t *testing.T) {
	t.Parallel()
	rgb := cat(t)
	for orientation := 1; orientation <= 8; orientation++ {
		for _, bands := range []int{1, 3, 4} {
			want := map[int]*vips.Picture{1: grey(rgb), 3: rgb, 4: withAlpha(rgb)}[bands]
			t.Run(fmt.Sprint("PNG ", orientation, " of ", bands, " bands"), func(t *testing.T) {
				t.Parallel()
				b := insertPNG(asPNG(t, toImage(stored(want, orientation))), pngChunk("eXIf", exif(orientation, binary.BigEndian)))
				samePicture(t, want, decode(t, b), exact)
			})
		}
		t.Run(fmt.Sprint("WebP ", orientation), func(t *testing.T) {
			t.Parallel()
			s := stored(rgb, orientation)
			b := extendWebP(asWebP(t, s), s.Width, s.Height, false, nil, exif(orientation, binary.LittleEndian))
			samePicture(t, rgb, decode(t, b), exact)
		})
		t.Run(fmt.Sprint("JPEG ", orientation), func(t *testing.T) {
			t.Parallel()
			b := asJPEG(t, toImage(stored(rgb, orientation)))
			for _, order := range []binary.AppendByteOrder{binary.BigEndian, binary.LittleEndian} {
				samePicture(t, rgb, decode(t, exifJPEG(b, exif(orientation, order))), lossy)
			}
		})
	}
	t.Run("a photograph", func(t *testing.T) {
		t.Parallel()
		got := decode(t, photo(t, "astronaut-orientation-6.jpg"))
		if diff := cmp.Diff([]int{320, 426}, []int{got.Width, got.Height}); diff != "" {
			t.Error(diff)
		}
	})
	for _, orientation := range []int{0, 9, 65535} {
		t.Run(fmt.Sprint("nonsense ", orientation), func(t *testing.T) {
			t.Parallel()
			b := insertPNG(asPNG(t, toImage(rgb)), pngChunk("eXIf", exif(orientation, binary.BigEndian)))
			samePicture(t, rgb, decode(t, b), exact)
			samePicture(t, rgb, decode(t, exifJPEG(asJPEG(t, toImage(rgb)), exif(orientation, binary.BigEndian))), lossy)
		})
	}
}

func TestDecode_of_extreme_shapes(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{1, 1}, {1, 5000}, {5000, 1}, {2, 2}, {3, 17}} {
		width, height := size[0], size[1]
		want := &vips.Picture{Width: width, Height: height, Bands: 3}
		for i := range width * height {
			want.Pix = append(want.Pix, byte(i/20), byte(100+i/40), byte(200-i/30))
		}
		t.Run(fmt.Sprint(width, " x ", height), func(t *testing.T) {
			t.Parallel()
			b := asPNG(t, toImage(want))
			samePicture(t, want, decode(t, b), exact)
			samePicture(t, want, decode(t, asWebP(t, want)), exact)
			samePicture(t, want, decode(t, asJPEG(t, toImage(want))), tolerance{worst: 12, mean: 3, shift: 1})
			for orientation := 2; orientation <= 8; orientation++ {
				b := insertPNG(asPNG(t, toImage(stored(want, orientation))), pngChunk("eXIf", exif(orientation, binary.BigEndian)))
				samePicture(t, want, decode(t, b), exact)
			}
		})
	}
}

func TestDecode_converts_colour_profiles_to_sRGB(t *testing.T) {
	t.Parallel()
	want := withAlpha(cat(t))
	for name, space := range map[string]colourSpace{"Display P3": displayP3(), "Adobe RGB": adobeRGB()} {
		tagged := func(alpha bool) *vips.Picture {
			return mapPixels(want, want.Bands, func(_, _ int, c []byte) []byte {
				v, a := space.from(c), c[3]
				if !alpha {
					a = 255
				}
				return []byte{byte(math.Round(v[0] * 255)), byte(math.Round(v[1] * 255)), byte(math.Round(v[2] * 255)), a}
			})
		}
		close := tolerance{worst: 3, mean: 0.6, shift: 0.2} // two roundings to 8 bits
		t.Run(name+" PNG with alpha", func(t *testing.T) {
			t.Parallel()
			samePicture(t, want, decode(t, insertPNG(asPNG(t, toImage(tagged(true))), profileChunk(t, space.profile()))), close)
		})
		t.Run(name+" WebP", func(t *testing.T) {
			t.Parallel()
			p := fromImage(toImage(tagged(false)), 3)
			b := extendWebP(asWebP(t, p), p.Width, p.Height, false, space.profile(), nil)
			samePicture(t, fromImage(toImage(mapPixels(want, 3, rgbOf)), 3), decode(t, b), close)
		})
		t.Run(name+" JPEG on its side", func(t *testing.T) {
			t.Parallel()
			p := stored(fromImage(toImage(tagged(false)), 3), 6)
			b := exifJPEG(profileJPEG(asJPEG(t, toImage(p)), space.profile()), exif(6, binary.BigEndian))
			samePicture(t, mapPixels(want, 3, rgbOf), decode(t, b), lossy)
		})
		// vips_icc_transform to 8 bits spoils 16-bit alpha: its mean came out
		// half as high again.
		t.Run(name+" 16-bit PNG with alpha", func(t *testing.T) {
			t.Parallel()
			m := image.NewNRGBA64(image.Rect(0, 0, want.Width, want.Height))
			for i := range want.Width * want.Height {
				c := want.Pix[4*i:]
				v := space.from(c)
				m.SetNRGBA64(i%want.Width, i/want.Width, color.NRGBA64{
					R: uint16(math.Round(v[0] * 65535)), G: uint16(math.Round(v[1] * 65535)), B: uint16(math.Round(v[2] * 65535)), A: uint16(c[3]) * 257,
				})
			}
			got := decode(t, insertPNG(asPNG(t, m), profileChunk(t, space.profile())))
			samePicture(t, want, got, tolerance{worst: 2, mean: 0.1, shift: 0.1})
			samePicture(t, mapPixels(want, 1, alphaOf), mapPixels(got, 1, alphaOf), exact)
		})
	}
}

func rgbOf(_, _ int, c []byte) []byte   { return bytes.Clone(c[:3]) }
func alphaOf(_, _ int, c []byte) []byte { return []byte{c[3]} }

func TestDecode_leaves_pixels_alone_whose_profile_is_sRGB(t *testing.T) {
	t.Parallel()
	want := cat(t)
	samePicture(t, want, decode(t, insertPNG(asPNG(t, toImage(want)), profileChunk(t, sRGB().profile()))), exact)
}

func TestDecode_converts_grey_profiles_and_stays_grey(t *testing.T) {
	t.Parallel()
	want := withAlpha(grey(cat(t)))
	const gamma = 1.75
	base := sRGB()
	code := func(v byte) float64 { return math.Pow(base.linear(float64(v)/255), 1/gamma) }
	t.Run("8 bits", func(t *testing.T) {
		t.Parallel()
		want := grey(cat(t))
		tagged := mapPixels(want, 1, func(_, _ int, c []byte) []byte { return []byte{byte(math.Round(255 * code(c[0])))} })
		got := decode(t, insertPNG(asPNG(t, toImage(tagged)), profileChunk(t, greyProfile(gamma))))
		samePicture(t, want, got, tolerance{worst: 4, mean: 0.7, shift: 0.3})
		samePicture(t, want, decode(t, profileJPEG(asJPEG(t, toImage(tagged)), greyProfile(gamma))), tolerance{worst: 14, mean: 1.5, shift: 0.3})
	})
	t.Run("16 bits with alpha", func(t *testing.T) {
		t.Parallel()
		var rows [][]byte
		for y := range want.Height {
			var row []byte
			for x := range want.Width {
				c := want.Pix[(y*want.Width+x)*2:]
				row = binary.BigEndian.AppendUint16(row, uint16(math.Round(65535*code(c[0]))))
				row = append(row, c[1], c[1])
			}
			rows = append(rows, row)
		}
		b := rawPNG(t, want.Width, want.Height, 16, 4, rows, profileChunk(t, greyProfile(gamma)))
		samePicture(t, want, decode(t, b), tolerance{worst: 2, mean: 0.1, shift: 0.1})
	})
}

func TestDecode_ignores_a_profile_for_other_pixels(t *testing.T) {
	t.Parallel()
	rgb := cat(t)
	samePicture(t, grey(rgb), decode(t, profileJPEG(asJPEG(t, toImage(grey(rgb))), adobeRGB().profile())), tolerance{worst: 10, mean: 1, shift: 0.3})
	samePicture(t, rgb, decode(t, profileJPEG(asJPEG(t, toImage(rgb)), greyProfile(2.2))), lossy)
	samePicture(t, rgb, decode(t, profileJPEG(asJPEG(t, toImage(rgb)), iccProfile("CMYK", "prtr", map[string][]byte{}))), lossy)
	t.Run("and one that cannot be used", func(t *testing.T) {
		t.Parallel()
		samePicture(t, rgb, decode(t, profileJPEG(asJPEG(t, toImage(rgb)), iccProfile("RGB ", "mntr", map[string][]byte{}))), lossy)
		samePicture(t, grey(rgb), decode(t, profileJPEG(asJPEG(t, toImage(grey(rgb))), iccProfile("GRAY", "mntr", map[string][]byte{}))), tolerance{worst: 10, mean: 1, shift: 0.3})
	})
}

func TestDecode_of_CMYK(t *testing.T) {
	t.Parallel()
	// Muted, so that the inks can show it.
	want := mapPixels(cat(t), 3, func(_, _ int, c []byte) []byte {
		return []byte{64 + c[0]/2, 64 + c[1]/2, 64 + c[2]/2}
	})
	for name, stripped := range map[string]bool{"with a profile": false, "without one": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := bimg.Resize(asPNG(t, toImage(want)), bimg.Options{
				Type: bimg.JPEG, Quality: 97, InputICC: "srgb", OutputICC: "cmyk", StripMetadata: stripped, NoProfile: stripped, NoAutoRotate: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			if embedded := bytes.Contains(b, []byte("ICC_PROFILE")); embedded == stripped {
				t.Fatalf("profile embedded: %v", embedded)
			}
			h, err := vips.ReadHeader(b)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(vips.Header{Type: job.JPEG, Width: 157, Height: 103, Frames: 1}, h); diff != "" {
				t.Error(diff)
			}
			samePicture(t, want, decode(t, b), tolerance{worst: 20, mean: 3, shift: 5})
		})
	}
}

func TestDecode_of_interlaced_files(t *testing.T) {
	t.Parallel()
	want := decode(t, photo(t, "chelsea.png"))
	for name, kind := range map[string]bimg.ImageType{"Adam7 PNG": bimg.PNG, "progressive JPEG": bimg.JPEG} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := bimg.Resize(photo(t, "chelsea.png"), bimg.Options{Type: kind, Interlace: true, Quality: 97, NoAutoRotate: true})
			if err != nil {
				t.Fatal(err)
			}
			h, err := vips.ReadHeader(b)
			if err != nil {
				t.Fatal(err)
			}
			if !h.Interlaced {
				t.Error("not seen to be interlaced")
			}
			allowed := exact
			if kind == bimg.JPEG {
				allowed = lossy
			}
			samePicture(t, want, decode(t, b), allowed)
		})
	}
}

// A job that was taken over must not go on decoding 100 megapixels.
func TestDecode_stops_when_cancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	picture := encodeJPEG(t, noisy(600, 3000), 95)
	decoded := make(chan error)
	go func() {
		_, err := vips.DecodeContext(ctx, picture, t.TempDir(), nil)
		decoded <- err
	}()
	cancel()
	if err := <-decoded; err != nil && !errors.Is(err, context.Canceled) { // nil when it was faster
		t.Errorf("got %v, want context.Canceled", err)
	}
	if _, err := vips.DecodeContext(ctx, picture, t.TempDir(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("began although cancelled: %v", err)
	}
	if _, err := vips.DecodeContext(t.Context(), picture, t.TempDir(), nil); err != nil {
		t.Errorf("cannot be decoded afterwards: %v", err)
	}
}
