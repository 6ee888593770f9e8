package intake_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"pictor/internal/fault"
	"pictor/internal/intake"
	"pictor/internal/job"
)

// What a header shows is refused before anything is charged, whatever the type:
// files of some kilobytes that say that they have hundreds of megapixels, and
// colour profiles that are none.
func TestRead_refuses_bombs_of_every_type_by_their_header(t *testing.T) {
	t.Parallel()
	small, jpeg := photo(t, "chelsea.png"), bytes.Clone(photo(t, "astronaut.jpg"))
	interlaced := sized(small, 30_000, 30_000)
	interlaced[28] = 1
	binary.BigEndian.PutUint32(interlaced[29:], crc32.ChecksumIEEE(interlaced[12:29]))
	frame := bytes.Index(jpeg, []byte{0xff, 0xc0, 0, 17, 8})
	if frame < 0 {
		t.Fatal("astronaut.jpg has no baseline frame")
	}
	binary.BigEndian.PutUint16(jpeg[frame+5:], 60_000)
	binary.BigEndian.PutUint16(jpeg[frame+7:], 60_000)
	webp := riff("RIFF", append([]byte("WEBP"), append(riff("VP8X", []byte{0, 0, 0, 0, 0xfe, 0x3f, 0, 0xfe, 0x3f, 0}), photo(t, "coffee.webp")[12:]...)...))
	profile := append([]byte("ICC_PROFILE\x00\x01\x01"), bytes.Repeat([]byte("noise"), 100)...)
	tagged := append([]byte{0xff, 0xd8, 0xff, 0xe2}, binary.BigEndian.AppendUint16(nil, uint16(len(profile)+2))...)
	tagged = append(append(tagged, profile...), photo(t, "astronaut.jpg")[2:]...)
	for name, row := range map[string]struct {
		b     []byte
		words string
	}{
		"interlaced PNG":        {interlaced, "30000 x 30000"},
		"JPEG":                  {jpeg, "60000 x 60000"},
		"WebP":                  {webp, ""},
		"absurd colour profile": {tagged, "colour profile"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := newIntake(t, intake.Config{}).Take(t.Context(), job.RemoveBG, intake.Source{Bytes: bytes.NewReader(row.b)})
			refused(t, err, fault.InvalidImage, row.words)
		})
	}
}
