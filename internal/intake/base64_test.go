package intake_test

import (
	"bytes"
	"encoding/base64"
	"io"
	"strings"
	"testing"

	"pictor/internal/fault"
	"pictor/internal/intake"
	"pictor/internal/job"
)

func base64Of(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func TestBase64_takes(t *testing.T) {
	t.Parallel()
	// Lengths that need no, one and two characters of padding.
	for extra := range 3 {
		sent := padded(photo(t, "chelsea.png"), len(photo(t, "chelsea.png"))+extra)
		text := base64Of(sent)
		for name, s := range map[string]string{
			"plain":                       text,
			"without padding":             strings.TrimRight(text, "="),
			"URL-safe":                    base64.URLEncoding.EncodeToString(sent),
			"URL-safe without padding":    base64.RawURLEncoding.EncodeToString(sent),
			"MIME lines":                  lines(text, 76, "\r\n"),
			"lines and blanks around":     "\n  " + lines(text, 64, "\n") + " \t\n",
			"a line break in padding":     strings.Replace(text, "=", "\n=", 1),
			"a data URL":                  "data:image/png;base64," + text,
			"a data URL with a parameter": "data:image/png;charset=utf-8;base64," + text,
			"a data URL without a type":   "data:;base64," + text,
			"a data URL in capitals":      "DATA:IMAGE/PNG;BASE64," + text,
			"a data URL with blanks":      " data:image/png; base64,\n" + lines(text, 76, "\n"),
			"a data URL of a wrong type": "data:text/html;base64," +
				base64.RawURLEncoding.EncodeToString(sent),
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				image, err := newIntake(t, intake.Config{}).Take(t.Context(), job.RemoveBG, intake.Source{Base64: s})
				if err != nil {
					t.Fatal(err)
				}
				defer image.Close()
				holds(t, image, sent)
			})
		}
	}
}

func TestBase64_refuses(t *testing.T) {
	t.Parallel()
	text := base64Of(photo(t, "chelsea.png"))
	for _, row := range []struct {
		name, text string
		code       fault.Code
	}{
		{"nothing", "", fault.MissingImage},
		{"blanks", " \n\t", fault.MissingImage},
		{"a data URL of nothing", "data:image/png;base64,", fault.MissingImage},
		{"text", "not base64 at all!", fault.InvalidImage},
		{"a URL", "https://example.com/cat.png", fault.InvalidImage},
		{"base64 of no picture", base64Of([]byte("hello, I am a picture")), fault.InvalidImage},
		{"base64 of a picture with rubbish in it", text[:1000] + "%" + text[1000:], fault.InvalidImage},
		{"base64 of a picture with a zero in it", text[:1000] + "\x00" + text[1000:], fault.InvalidImage},
		{"padding alone", "====", fault.InvalidImage},
		{"too much padding", strings.TrimRight(text, "=") + "===", fault.InvalidImage},
		{"padding in the middle", text[:1000] + "==" + text[1000:], fault.InvalidImage},
		{"a lonely last character", text[:1001], fault.InvalidImage},
		{"a data URL without a comma", "data:image/png;base64", fault.InvalidImage},
		{"a data URL that is not base64", "data:image/png,%89PNG", fault.InvalidImage},
		{"a data URL inside a data URL", "data:image/png;base64,data:image/png;base64," + text, fault.InvalidImage},
		{"one byte too many", base64Of(make([]byte, job.MaxImageBytes+1)), fault.FileTooLarge},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := newIntake(t, intake.Config{}).Take(t.Context(), job.RemoveBG, intake.Source{Base64: row.text})
			refused(t, err, row.code, "")
		})
	}
}

// FuzzBase64 holds that accepted text stands for its bytes and for no others:
// they encode to the same text, but for blanks, padding and alphabet.
func FuzzBase64(f *testing.F) {
	for _, s := range []string{
		"", "QQ==", "QQ", "QUI=", "QUJD", "Q U\nJ\tD", "_-8=", "/+8", "QR==", "Q", "====", "QQ=Q", "Q===", "QUJDRA=\n=",
		"data:image/png;base64,QUJD", "data:,x", "data:;base64", "DATA:;BASE64,_w", "data:a;base64 ,\r\nQ Q = =",
	} {
		f.Add(s)
	}
	plain := strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "", "\v", "", "\f", "", "=", "", "-", "+", "_", "/")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := intake.OpenBase64(s)
		if err != nil {
			return
		}
		b, err := io.ReadAll(r)
		if err != nil {
			return
		}
		body := s
		if begin := strings.TrimLeft(s, " \t\r\n"); len(begin) >= 5 && strings.EqualFold(begin[:5], "data:") {
			_, body, _ = strings.Cut(s, ",")
		}
		if want, got := plain.Replace(body), base64.RawStdEncoding.EncodeToString(b); want != got {
			t.Fatalf("%q was read as %q", body, b)
		}
		again, err := intake.OpenBase64(base64Of(b))
		if err != nil {
			t.Fatal(err)
		}
		if back, err := io.ReadAll(again); err != nil || !bytes.Equal(b, back) {
			t.Fatalf("%q came back as %q, %v", b, back, err)
		}
	})
}

func BenchmarkBase64(b *testing.B) {
	text := base64Of(make([]byte, job.MaxImageBytes))
	b.SetBytes(job.MaxImageBytes)
	for b.Loop() {
		r, err := intake.OpenBase64(text)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			b.Fatal(err)
		}
	}
}

func lines(s string, width int, end string) string {
	var out strings.Builder
	for len(s) > width {
		out.WriteString(s[:width] + end)
		s = s[width:]
	}
	return out.String() + s
}
