package httpapi_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"mime/multipart"
	"net/textproto"
	"testing"
)

// cup is a request with the smallest of the photographs.
func cup(t testing.TB, key, path string, header ...string) request {
	t.Helper()
	r := upload(key, path, "image/png", photo(t, "cup.png"), header...)
	r.shown = "<testdata/images/cup.png>"
	return r
}

// pngOfSize is a good PNG of exactly n bytes: a private chunk that every reader
// skips fills it up.
func pngOfSize(t testing.TB, n int) []byte {
	t.Helper()
	png := photo(t, "cup.png")
	const ihdrEnd = 8 + 25
	padding := n - len(png) - 12
	chunk := make([]byte, 4, padding+12)
	binary.BigEndian.PutUint32(chunk, uint32(padding))
	chunk = append(chunk, "prVt"...)
	chunk = append(chunk, make([]byte, padding)...)
	chunk = binary.BigEndian.AppendUint32(chunk, crc32.ChecksumIEEE(chunk[4:]))
	return bytes.Join([][]byte{png[:ihdrEnd], chunk, png[ihdrEnd:]}, nil)
}

// part is a part of a form; a file when it has a file name.
type part struct {
	name, file, contentType string
	data                    []byte
}

func form(t testing.TB, parts ...part) (contentType string, body []byte) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, p := range parts {
		h := textproto.MIMEHeader{}
		disposition := `form-data; name="` + p.name + `"`
		if p.file != "" {
			disposition += `; filename="` + p.file + `"`
		}
		h.Set("Content-Disposition", disposition)
		if p.contentType != "" {
			h.Set("Content-Type", p.contentType)
		}
		out, err := w.CreatePart(h)
		must(t, err)
		_, err = out.Write(p.data)
		must(t, err)
	}
	must(t, w.Close())
	return w.FormDataContentType(), b.Bytes()
}

func uploadForm(t testing.TB, key, path string, parts ...part) request {
	t.Helper()
	contentType, body := form(t, parts...)
	return upload(key, path, contentType, body)
}

// indent makes a transcript readable.
func indent(data []byte) string {
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", "  "); err != nil {
		return string(data)
	}
	return b.String()
}
