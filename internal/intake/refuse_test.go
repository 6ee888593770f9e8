package intake_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"testing/iotest"

	"pictor/internal/fault"
	"pictor/internal/intake"
	"pictor/internal/job"
)

func TestRefuse(t *testing.T) {
	t.Parallel()
	refused := fault.Running()
	ordinary := photo(t, "chelsea.png")
	exact := append(bytes.Clone(ordinary), long(job.MaxImageBytes-len(ordinary))...)
	for _, row := range []struct {
		name  string
		image io.Reader
		task  job.Task
		want  fault.Code
	}{
		{"PNG", bytes.NewReader(ordinary), job.Upscale4x, fault.TooManyJobs},
		{"JPEG", bytes.NewReader(photo(t, "astronaut.jpg")), job.Upscale4x, fault.TooManyJobs},
		{"JPEG on its side", bytes.NewReader(photo(t, "astronaut-orientation-6.jpg")), job.RemoveBG, fault.TooManyJobs},
		{"WebP", bytes.NewReader(photo(t, "coffee.webp")), job.RemoveBG, fault.TooManyJobs},
		{"WebP with alpha", bytes.NewReader(photo(t, "coffee-alpha.webp")), job.RemoveBG, fault.TooManyJobs},
		{"byte by byte", iotest.OneByteReader(bytes.NewReader(ordinary)), job.RemoveBG, fault.TooManyJobs},
		{"as large as may be", bytes.NewReader(exact), job.RemoveBG, fault.TooManyJobs},
		{"a byte too large", io.MultiReader(bytes.NewReader(exact), bytes.NewReader(long(1))), job.RemoveBG, fault.FileTooLarge},
		{"no picture", bytes.NewReader([]byte("x")), job.RemoveBG, fault.InvalidImage},
		{"no picture, too large", bytes.NewReader(long(job.MaxImageBytes + 1)), job.RemoveBG, fault.FileTooLarge},
		{"nothing", bytes.NewReader(nil), job.RemoveBG, fault.MissingImage},
		{"broken header", bytes.NewReader(ordinary[:20]), job.RemoveBG, fault.InvalidImage},
		{"broken off", io.MultiReader(bytes.NewReader(ordinary), iotest.ErrReader(io.ErrUnexpectedEOF)), job.RemoveBG, fault.BadRequest},
		{"too slow", io.MultiReader(bytes.NewReader(ordinary), iotest.ErrReader(os.ErrDeadlineExceeded)), job.RemoveBG, fault.BadRequest},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			err := newIntake(t, intake.Config{}).Refuse(t.Context(), row.task, row.image, refused)
			if !errors.Is(err, fault.New(row.want, "")) {
				t.Errorf("got %v, want %s", err, row.want)
			}
		})
	}
}

// An image that would not be taken anyway is refused for that: its sender must
// not send it again once there is room for its job.
func TestRefuse_says_what_Read_would_say_of_the_image(t *testing.T) {
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
			_, want := in.Read(t.Context(), job.Upscale4x, bytes.NewReader(image))
			got := in.Refuse(t.Context(), job.Upscale4x, bytes.NewReader(image), fault.Running())
			if want == nil || fault.From(got).Message != fault.From(want).Message {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func long(n int) []byte { return bytes.Repeat([]byte("x"), n) }
