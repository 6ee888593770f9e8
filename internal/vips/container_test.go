package vips_test

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"hash/crc32"
	"math"
	"testing"
)

// The builders here write what the standard library's encoders cannot: EXIF,
// colour profiles and odd kinds of pixels, byte by byte out of the standards,
// so that the tests do not ask libvips whether libvips is right.

// exif is a TIFF structure with the orientation alone.
func exif(orientation int, order binary.AppendByteOrder) []byte {
	b := []byte("MM")
	if order == binary.AppendByteOrder(binary.LittleEndian) {
		b = []byte("II")
	}
	b = order.AppendUint16(b, 42)
	b = order.AppendUint32(b, 8) // where the directory is
	b = order.AppendUint16(b, 1) // entries
	b = order.AppendUint16(b, 0x0112)
	b = order.AppendUint16(b, 3) // a short
	b = order.AppendUint32(b, 1) // of which there is one
	b = order.AppendUint16(b, uint16(orientation))
	b = order.AppendUint16(b, 0)
	return order.AppendUint32(b, 0) // no further directory
}

func pngChunk(kind string, data []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(data)))
	b = append(append(b, kind...), data...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[4:]))
}

// insertPNG puts chunks behind the IHDR.
func insertPNG(png []byte, chunks ...[]byte) []byte {
	const behindHead = 8 + 25
	out := bytes.Clone(png[:behindHead])
	for _, c := range chunks {
		out = append(out, c...)
	}
	return append(out, png[behindHead:]...)
}

func deflate(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func profileChunk(t testing.TB, icc []byte) []byte {
	t.Helper()
	return pngChunk("iCCP", append([]byte("profile\x00\x00"), deflate(t, icc)...))
}

// rawPNG stores rows, packed as PNG wants them and unfiltered.
func rawPNG(t testing.TB, width, height, depth, colour int, rows [][]byte, chunks ...[]byte) []byte {
	t.Helper()
	head := binary.BigEndian.AppendUint32(nil, uint32(width))
	head = binary.BigEndian.AppendUint32(head, uint32(height))
	head = append(head, byte(depth), byte(colour), 0, 0, 0)
	var data []byte
	for _, row := range rows {
		data = append(append(data, 0), row...)
	}
	b := append([]byte("\x89PNG\r\n\x1a\n"), pngChunk("IHDR", head)...)
	for _, c := range chunks {
		b = append(b, c...)
	}
	b = append(b, pngChunk("IDAT", deflate(t, data))...)
	return append(b, pngChunk("IEND", nil)...)
}

// insertJPEG puts an application segment behind the start of the image.
func insertJPEG(jpeg []byte, marker byte, data []byte) []byte {
	out := append(bytes.Clone(jpeg[:2]), 0xff, marker)
	out = binary.BigEndian.AppendUint16(out, uint16(len(data)+2))
	return append(append(out, data...), jpeg[2:]...)
}

func exifJPEG(jpeg []byte, tiff []byte) []byte {
	return insertJPEG(jpeg, 0xe1, append([]byte("Exif\x00\x00"), tiff...))
}

func profileJPEG(jpeg []byte, icc []byte) []byte {
	return insertJPEG(jpeg, 0xe2, append([]byte("ICC_PROFILE\x00\x01\x01"), icc...))
}

func webpChunk(kind string, data []byte) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(kind), uint32(len(data)))
	b = append(b, data...)
	return append(b, make([]byte, len(data)&1)...)
}

func uint24(b []byte, n int) []byte { return append(b, byte(n), byte(n>>8), byte(n>>16)) }

func riff(chunks ...[]byte) []byte {
	body := append([]byte("WEBP"), bytes.Join(chunks, nil)...)
	return append(binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(len(body))), body...)
}

// frame is what EncodeWebP wrote behind the header.
func frame(webp []byte) []byte {
	const head = 12
	if string(webp[head:head+4]) == "VP8X" {
		return webp[head+18:]
	}
	return webp[head:]
}

// extendWebP wraps the frame of a WebP together with metadata.
func extendWebP(webp []byte, width, height int, alpha bool, icc, tiff []byte) []byte {
	var flags byte
	if len(icc) > 0 {
		flags |= 0x20
	}
	if alpha {
		flags |= 0x10
	}
	if len(tiff) > 0 {
		flags |= 0x08
	}
	head := webpChunk("VP8X", uint24(uint24([]byte{flags, 0, 0, 0}, width-1), height-1))
	chunks := [][]byte{head}
	if len(icc) > 0 {
		chunks = append(chunks, webpChunk("ICCP", icc))
	}
	chunks = append(chunks, frame(webp))
	if len(tiff) > 0 {
		chunks = append(chunks, webpChunk("EXIF", tiff))
	}
	return riff(chunks...)
}

// animateWebP repeats the frame of a WebP.
func animateWebP(webp []byte, width, height, frames int) []byte {
	chunks := [][]byte{
		webpChunk("VP8X", uint24(uint24([]byte{0x02, 0, 0, 0}, width-1), height-1)),
		webpChunk("ANIM", make([]byte, 6)),
	}
	head := uint24(uint24(make([]byte, 6), width-1), height-1)
	head = append(uint24(head, 100), 0)
	for range frames {
		chunks = append(chunks, webpChunk("ANMF", append(bytes.Clone(head), frame(webp)...)))
	}
	return riff(chunks...)
}

// colourSpace is an RGB space of matrix and gamma, as ICC profiles describe it:
// the colours of its primaries in XYZ, adapted to D50.
type colourSpace struct {
	red, green, blue [3]float64
	gamma            float64 // 0: the curve of sRGB
}

func sRGB() colourSpace {
	return colourSpace{[3]float64{0.4360747, 0.2225045, 0.0139322}, [3]float64{0.3850649, 0.7168786, 0.0971045}, [3]float64{0.1430804, 0.0606169, 0.7141733}, 0}
}

func displayP3() colourSpace {
	return colourSpace{[3]float64{0.5151187, 0.2411896, -0.0010505}, [3]float64{0.2919778, 0.6922441, 0.0418791}, [3]float64{0.1571035, 0.0665662, 0.7840713}, 0}
}

func adobeRGB() colourSpace {
	return colourSpace{[3]float64{0.6097559, 0.3111242, 0.0194811}, [3]float64{0.2052401, 0.6256560, 0.0608902}, [3]float64{0.1492240, 0.0632197, 0.7448387}, 563.0 / 256}
}

func (s colourSpace) linear(v float64) float64 {
	switch {
	case s.gamma != 0:
		return math.Pow(v, s.gamma)
	case v <= 0.04045:
		return v / 12.92
	default:
		return math.Pow((v+0.055)/1.055, 2.4)
	}
}

func (s colourSpace) encode(v float64) float64 {
	switch v = max(0, min(1, v)); {
	case s.gamma != 0:
		return math.Pow(v, 1/s.gamma)
	case v <= 0.0031308:
		return v * 12.92
	default:
		return 1.055*math.Pow(v, 1/2.4) - 0.055
	}
}

// from converts an 8-bit colour of sRGB into this space: samples of 0 to 1.
func (s colourSpace) from(pixel []byte) [3]float64 {
	base := sRGB()
	var xyz [3]float64
	for i := range xyz {
		xyz[i] = base.linear(float64(pixel[0])/255)*base.red[i] + base.linear(float64(pixel[1])/255)*base.green[i] + base.linear(float64(pixel[2])/255)*base.blue[i]
	}
	// Cramer's rule for the three amounts of this space's primaries.
	det := func(a, b, c [3]float64) float64 {
		return a[0]*(b[1]*c[2]-b[2]*c[1]) - b[0]*(a[1]*c[2]-a[2]*c[1]) + c[0]*(a[1]*b[2]-a[2]*b[1])
	}
	whole := det(s.red, s.green, s.blue)
	return [3]float64{
		s.encode(det(xyz, s.green, s.blue) / whole),
		s.encode(det(s.red, xyz, s.blue) / whole),
		s.encode(det(s.red, s.green, xyz) / whole),
	}
}

// profile writes an ICC profile of the space, version 2.
func (s colourSpace) profile() []byte {
	curve := append([]byte("curv\x00\x00\x00\x00"), binary.BigEndian.AppendUint32(nil, 1)...)
	curve = binary.BigEndian.AppendUint16(curve, uint16(math.Round(s.gamma*256)))
	if s.gamma == 0 {
		const points = 1024
		curve = append([]byte("curv\x00\x00\x00\x00"), binary.BigEndian.AppendUint32(nil, points)...)
		for i := range points {
			curve = binary.BigEndian.AppendUint16(curve, uint16(math.Round(65535*s.linear(float64(i)/(points-1)))))
		}
	}
	return iccProfile("RGB ", "mntr", map[string][]byte{
		"wtpt": xyzTag([3]float64{0.9642, 1, 0.8249}), "rXYZ": xyzTag(s.red), "gXYZ": xyzTag(s.green), "bXYZ": xyzTag(s.blue),
		"rTRC": curve, "gTRC": curve, "bTRC": curve,
	})
}

// greyProfile is an ICC profile of grey with a gamma.
func greyProfile(gamma float64) []byte {
	curve := append([]byte("curv\x00\x00\x00\x00"), binary.BigEndian.AppendUint32(nil, 1)...)
	curve = binary.BigEndian.AppendUint16(curve, uint16(math.Round(gamma*256)))
	return iccProfile("GRAY", "mntr", map[string][]byte{"wtpt": xyzTag([3]float64{0.9642, 1, 0.8249}), "kTRC": curve})
}

func xyzTag(v [3]float64) []byte {
	b := []byte("XYZ \x00\x00\x00\x00")
	for _, x := range v {
		b = binary.BigEndian.AppendUint32(b, uint32(int32(math.Round(x*65536))))
	}
	return b
}

func iccProfile(space, class string, tags map[string][]byte) []byte {
	head := make([]byte, 128)
	head[8] = 2 // version
	copy(head[12:], class)
	copy(head[16:], space)
	copy(head[20:], "XYZ ")
	copy(head[36:], "acsp")
	copy(head[68:], xyzTag([3]float64{0.9642, 1, 0.8249})[8:])
	tags["desc"] = append(append([]byte("desc\x00\x00\x00\x00\x00\x00\x00\x05test\x00"), make([]byte, 78)...), 0, 0, 0)
	tags["cprt"] = []byte("text\x00\x00\x00\x00none\x00\x00\x00\x00")
	table := binary.BigEndian.AppendUint32(nil, uint32(len(tags)))
	var body []byte
	for _, kind := range []string{"desc", "cprt", "wtpt", "rXYZ", "gXYZ", "bXYZ", "rTRC", "gTRC", "bTRC", "kTRC", "A2B0"} {
		data, ok := tags[kind]
		if !ok {
			continue
		}
		table = append(table, kind...)
		table = binary.BigEndian.AppendUint32(table, uint32(len(head)+4+12*len(tags)+len(body)))
		table = binary.BigEndian.AppendUint32(table, uint32(len(data)))
		body = append(body, data...)
		body = append(body, make([]byte, -len(body)&3)...)
	}
	b := append(append(head, table...), body...)
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	return b
}
