package intake_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/iotest"

	"pictor/internal/fault"
	"pictor/internal/intake"
	"pictor/internal/job"
)

func TestGlance_passes_an_ordinary_image_and_leaves_the_rest_unread(t *testing.T) {
	t.Parallel()
	for name, image := range map[string][]byte{
		"PNG":              photo(t, "chelsea.png"),
		"JPEG":             photo(t, "astronaut.jpg"),
		"JPEG on its side": photo(t, "astronaut-orientation-6.jpg"),
		"WebP":             photo(t, "coffee.webp"),
		"WebP with alpha":  photo(t, "coffee-alpha.webp"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newIntake(t, intake.Config{})
			for _, r := range []io.Reader{
				bytes.NewReader(image),
				iotest.OneByteReader(bytes.NewReader(image)),
				io.MultiReader(bytes.NewReader(image[:min(len(image), 64<<10)]), iotest.ErrReader(errors.New("read on"))),
			} {
				if err := in.Glance(t.Context(), job.RemoveBG, intake.Source{Bytes: r}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestGlance_finds_a_fault(t *testing.T) {
	t.Parallel()
	ordinary := photo(t, "chelsea.png")
	for _, row := range []struct {
		name  string
		image io.Reader
		want  fault.Code
	}{
		{"no picture", bytes.NewReader([]byte("x")), fault.InvalidImage},
		{"no picture, too large", bytes.NewReader(long(job.MaxImageBytes + 1)), fault.FileTooLarge},
		{"nothing", bytes.NewReader(nil), fault.MissingImage},
		{"broken header", bytes.NewReader(ordinary[:20]), fault.InvalidImage},
		{"broken off", io.MultiReader(bytes.NewReader(ordinary[:20]), iotest.ErrReader(io.ErrUnexpectedEOF)), fault.BadRequest},
		{"too slow", io.MultiReader(bytes.NewReader(ordinary[:20]), iotest.ErrReader(os.ErrDeadlineExceeded)), fault.BadRequest},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			err := newIntake(t, intake.Config{}).Glance(t.Context(), job.RemoveBG, intake.Source{Bytes: row.image})
			if !errors.Is(err, fault.New(row.want, "")) {
				t.Errorf("got %v, want %s", err, row.want)
			}
		})
	}
}

// An image that would not be taken anyway is refused for that: its sender must
// not send it again once there is room for its job.
func TestGlance_says_what_Read_would_say_of_the_image(t *testing.T) {
	t.Parallel()
	small := photo(t, "chelsea.png")
	for name, image := range map[string][]byte{
		"text":                       []byte("hello, I am a picture"),
		"cut off in its header":      photo(t, "astronaut.jpg")[:100],
		"animated PNG":               animated(small, 3),
		"animated WebP":              animatedWebP(t),
		"more than 100 megapixels":   sized(small, 10_001, 10_000),
		"no width":                   sized(small, 0, 10),
		"a side too long for 4x":     sized(small, 4097, 1),
		"a PNG with a broken header": append([]byte("\x89PNG\r\n\x1a\n"), long(100)...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newIntake(t, intake.Config{})
			_, want := in.Take(t.Context(), job.Upscale4x, intake.Source{Bytes: bytes.NewReader(image)})
			got := in.Glance(t.Context(), job.Upscale4x, intake.Source{Bytes: bytes.NewReader(image)})
			if want == nil || fault.From(got).Message != fault.From(want).Message {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// An account without Point could have any number of images downloaded. Here the
// rest never comes, and Glance does not wait for it.
func TestGlance_downloads_no_more_than_the_beginning(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(append(photo(t, "chelsea.png"), long(64<<10)...))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}))
	defer server.Close()
	if err := newIntake(t, intake.Config{Allow: loopback()}).Glance(t.Context(), job.RemoveBG, intake.Source{URL: server.URL}); err != nil {
		t.Error(err)
	}
	<-gone
}

func long(n int) []byte { return bytes.Repeat([]byte("x"), n) }
