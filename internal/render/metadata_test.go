package render_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"

	"pictor/internal/job"
	"pictor/internal/render"
	"pictor/internal/vips"
)

// secret stands in every kind of metadata: a place, a name, a comment.
const secret = "Where-I-Live"

// told is a picture as a camera of some orientation stores it, with all that
// cameras and programs write beside it.
func told(t *testing.T, imageType string, p *vips.Picture, orientation int) []byte {
	t.Helper()
	right, bottom := p.Width-1, p.Height-1
	w, h := p.Width, p.Height
	if orientation >= 5 {
		w, h = h, w
	}
	stored := newPicture(w, h, 3, func(column, row int) []byte {
		x, y := column, row
		switch orientation {
		case 2:
			x = right - column
		case 3:
			x, y = right-column, bottom-row
		case 4:
			y = bottom - row
		case 5:
			x, y = row, column
		case 6:
			x, y = right-row, column
		case 7:
			x, y = right-row, bottom-column
		case 8:
			x, y = row, bottom-column
		}
		return p.Pix[3*(y*p.Width+x):][:3]
	})

	// Two entries: the orientation, and a description out of line.
	tiff := []byte("MM\x00*\x00\x00\x00\x08\x00\x02")
	tiff = append(tiff, 0x01, 0x0e, 0, 2, 0, 0, 0, byte(len(secret)+1), 0, 0, 0, 38)
	tiff = append(tiff, 0x01, 0x12, 0, 3, 0, 0, 0, 1, 0, byte(orientation), 0, 0)
	tiff = append(append(tiff, 0, 0, 0, 0), secret+"\x00"...)
	xmp := "<x:xmpmeta xmlns:x='adobe:ns:meta/'>" + secret + "</x:xmpmeta>"
	switch imageType {
	case job.PNG:
		b := asPNG(t, stored)
		const behindHead = 8 + 25
		out := bytes.Clone(b[:behindHead])
		for _, c := range [][2]string{
			{"eXIf", string(tiff)}, {"tEXt", "Comment\x00" + secret}, {"iTXt", "XML:com.adobe.xmp\x00\x00\x00\x00\x00" + xmp}, {"tEXt", "Raw profile type iptc\x00" + secret},
		} {
			out = binary.BigEndian.AppendUint32(out, uint32(len(c[1])))
			out = append(out, c[0]+c[1]...)
			out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE([]byte(c[0]+c[1])))
		}
		return append(out, b[behindHead:]...)
	case job.JPEG:
		b := asJPEG(t, stored)
		out := bytes.Clone(b[:2])
		for _, s := range []struct {
			marker byte
			data   string
		}{
			{0xe1, "Exif\x00\x00" + string(tiff)}, {0xe1, "http://ns.adobe.com/xap/1.0/\x00" + xmp},
			{0xed, "Photoshop 3.0\x008BIM\x04\x04\x00\x00\x00\x00\x00\x0c" + secret}, {0xfe, secret},
		} {
			out = append(out, 0xff, s.marker)
			out = binary.BigEndian.AppendUint16(out, uint16(len(s.data)+2))
			out = append(out, s.data...)
		}
		return append(out, b[2:]...)
	default:
		chunk := func(kind, data string) []byte {
			b := binary.LittleEndian.AppendUint32([]byte(kind), uint32(len(data)))
			return append(append(b, data...), make([]byte, len(data)%2)...)
		}
		bits := bytes.Clone(asWebP(t, stored)[12:])
		head := []byte{0x08 | 0x04, 0, 0, 0, byte(w - 1), byte((w - 1) >> 8), 0, byte(h - 1), byte((h - 1) >> 8), 0}
		body := bytes.Join([][]byte{[]byte("WEBP"), chunk("VP8X", string(head)), bits, chunk("EXIF", string(tiff)), chunk("XMP ", xmp)}, nil)
		return append(binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(len(body))), body...)
	}
}

func TestRender_turns_a_picture_upright_once_and_writes_no_metadata(t *testing.T) {
	t.Parallel()
	p := newPicture(40, 26, 3, func(x, y int) []byte {
		return []byte{byte(60 + 4*x), byte(40 + 6*y), byte(200 - 80*((x/20+y/13)%2))}
	})
	renderers := map[job.Task]*render.Renderer{job.RemoveBG: with(t, constant(1)), job.Upscale2x: newRenderer(t)}
	for task, r := range renderers {
		want, _ := rendered(t, r, task, asPNG(t, p))
		for _, imageType := range []string{job.PNG, job.JPEG, job.WebP} {
			for orientation := 1; orientation <= 8; orientation++ {
				t.Run(fmt.Sprint(task, imageType, orientation), func(t *testing.T) {
					t.Parallel()
					in := told(t, imageType, p, orientation)
					if !bytes.Contains(in, []byte(secret)) {
						t.Fatal("nothing to hide")
					}
					var out bytes.Buffer
					result, err := r.Render(t.Context(), task, in, &out, nil)
					if err != nil {
						t.Fatal(err)
					}
					if wantType := map[job.Task]string{job.RemoveBG: job.PNG, job.Upscale2x: imageType}[task]; result.Type != wantType {
						t.Errorf("got a %s, want a %s", result.Type, wantType)
					}
					got := decoded(t, out.Bytes())
					allowed := map[string]float64{job.PNG: 0, job.WebP: 0, job.JPEG: 6}[imageType]
					if mean, _ := distance(t, want, got); mean > allowed {
						saveDifference(t, t.Name(), want, got)
						t.Errorf("differs from the upright picture by %.2f on average, want at most %.0f", mean, allowed)
					}
					for _, word := range []string{secret, "Exif", "EXIF", "eXIf", "XMP ", "xmp", "tEXt", "iTXt", "zTXt", "Photoshop", "ICC"} {
						if bytes.Contains(out.Bytes(), []byte(word)) {
							t.Errorf("the result holds %q", word)
						}
					}
				})
			}
		}
	}
}
