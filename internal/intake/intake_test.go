package intake_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/fault"
	"pictor/internal/intake"
	"pictor/internal/job"
)

func TestRead_takes_a_picture_of_each_type(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		file string
		want job.Image
	}{
		{"astronaut.jpg", job.Image{Type: job.JPEG, Width: 512, Height: 512}},
		{"astronaut-orientation-6.jpg", job.Image{Type: job.JPEG, Width: 320, Height: 426}},
		{"chelsea.png", job.Image{Type: job.PNG, Width: 451, Height: 300}},
		{"camera.png", job.Image{Type: job.PNG, Width: 512, Height: 512}},
		{"coffee.webp", job.Image{Type: job.WebP, Width: 600, Height: 400}},
		{"coffee-alpha.webp", job.Image{Type: job.WebP, Width: 345, Height: 300}},
	} {
		t.Run(row.file, func(t *testing.T) {
			t.Parallel()
			sent := photo(t, row.file)
			row.want.Size = int64(len(sent))
			image, err := newIntake(t, intake.Config{}).Take(t.Context(), job.RemoveBG, intake.Source{Bytes: iotest.OneByteReader(bytes.NewReader(sent))})
			if err != nil {
				t.Fatal(err)
			}
			defer image.Close()
			if diff := cmp.Diff(row.want, image.Image); diff != "" {
				t.Error(diff)
			}
			holds(t, image, sent)
		})
	}
}

func TestRead_refuses(t *testing.T) {
	t.Parallel()
	small := photo(t, "chelsea.png")
	for _, row := range []struct {
		name    string
		task    job.Task
		body    io.Reader
		code    fault.Code
		message string // a part of it
	}{
		{"nothing", job.RemoveBG, strings.NewReader(""), fault.MissingImage, "no image"},
		{"text", job.RemoveBG, strings.NewReader("hello, I am a picture"), fault.InvalidImage, "PNG, JPEG or WebP"},
		{"one byte", job.RemoveBG, strings.NewReader("\x89"), fault.InvalidImage, "PNG, JPEG or WebP"},
		{"a GIF", job.RemoveBG, strings.NewReader("GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"), fault.InvalidImage, "PNG, JPEG or WebP"},
		{"an SVG", job.RemoveBG, strings.NewReader(`<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>`), fault.InvalidImage, "PNG, JPEG or WebP"},
		{"a PNG signature alone", job.RemoveBG, bytes.NewReader(small[:8]), fault.InvalidImage, "PNG"},
		{"a JPEG cut off in its header", job.RemoveBG, bytes.NewReader(photo(t, "astronaut.jpg")[:100]), fault.InvalidImage, "JPEG"},
		{"an animated PNG", job.RemoveBG, bytes.NewReader(animated(small, 3)), fault.InvalidImage, "3 frames"},
		{"an animated WebP", job.RemoveBG, bytes.NewReader(animatedWebP(t)), fault.InvalidImage, "2 frames"},
		{"more than 100 megapixels", job.RemoveBG, bytes.NewReader(sized(small, 10_001, 10_000)), fault.InvalidImage, "10001 x 10000 pixels"},
		{"a bomb", job.RemoveBG, bytes.NewReader(sized(small, 30_000, 30_000)), fault.InvalidImage, "100 million"},
		{"more pixels than an int32 holds", job.RemoveBG, bytes.NewReader(sized(small, 1_000_000, 1_000_000)), fault.InvalidImage, ""},
		{"no width", job.RemoveBG, bytes.NewReader(sized(small, 0, 10)), fault.InvalidImage, ""},
		{"a side too long for 4x", job.Upscale4x, bytes.NewReader(sized(small, 4097, 1)), fault.InvalidImage, "4097 x 1 pixels. For scale 4 its longest side may have 4096 pixels"},
		{"an upright side too long for 4x", job.Upscale4x, bytes.NewReader(sized(small, 1, 4097)), fault.InvalidImage, "scale 4"},
		{"one byte too many", job.RemoveBG, io.LimitReader(io.MultiReader(bytes.NewReader(small), zeros{}), job.MaxImageBytes+1), fault.FileTooLarge, "20 MB"},
		{"too many bytes of no picture", job.RemoveBG, zeros{}, fault.FileTooLarge, "20 MB"},
		{"a body over the server's limit", job.RemoveBG, http.MaxBytesReader(httptest.NewRecorder(), io.NopCloser(zeros{}), 1000), fault.FileTooLarge, "20 MB"},
		{"a body that ends too early", job.RemoveBG, io.MultiReader(bytes.NewReader(small), iotest.ErrReader(io.ErrUnexpectedEOF)), fault.BadRequest, "Send it again"},
		{"a body that is too slow", job.RemoveBG, io.MultiReader(bytes.NewReader(small), iotest.ErrReader(os.ErrDeadlineExceeded)), fault.BadRequest, "too slowly"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := newIntake(t, intake.Config{}).Take(t.Context(), row.task, intake.Source{Bytes: row.body})
			refused(t, err, row.code, row.message)
		})
	}
}

func TestRead_takes_what_is_just_within_the_limits(t *testing.T) {
	t.Parallel()
	small := photo(t, "chelsea.png")
	for _, row := range []struct {
		name string
		task job.Task
		body []byte
	}{
		{"100 megapixels", job.RemoveBG, sized(small, 10_000, 10_000)},
		{"a long side for 2x", job.Upscale2x, sized(small, 20_000, 5000)},
		{"4096 pixels for 4x", job.Upscale4x, sized(small, 4096, 4096)},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			image, err := newIntake(t, intake.Config{}).Take(t.Context(), row.task, intake.Source{Bytes: bytes.NewReader(row.body)})
			if err != nil {
				t.Fatal(err)
			}
			defer image.Close()
			holds(t, image, row.body)
		})
	}
}

func TestRead_stops_one_byte_over_the_limit(t *testing.T) {
	t.Parallel()
	endless := &counted{r: zeros{}}
	_, err := newIntake(t, intake.Config{}).Take(t.Context(), job.RemoveBG, intake.Source{Bytes: endless})
	refused(t, err, fault.FileTooLarge, "")
	if over := endless.n - job.MaxImageBytes; over > 64<<10 {
		t.Errorf("read %d bytes more than it had to", over)
	}
}

func TestRead_leaves_no_file_behind_and_reports_trouble_of_our_own(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "spool")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	in := newIntake(t, intake.Config{Dir: dir})
	image, err := in.Take(t.Context(), job.RemoveBG, intake.Source{Bytes: bytes.NewReader(photo(t, "chelsea.png"))})
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	// Already now: a killed process leaves nothing either.
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("%d files, %v", len(entries), err)
	}

	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	_, err = in.Take(t.Context(), job.RemoveBG, intake.Source{Bytes: bytes.NewReader(photo(t, "chelsea.png"))})
	refused(t, err, fault.Unavailable, "")
	if _, err := intake.New(intake.Config{Dir: dir}); err == nil {
		t.Error("New took a folder that is not there")
	}
}

func TestRead_ends_with_its_context(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	body := io.MultiReader(strings.NewReader("x"), onRead(cancel), zeros{})
	if _, err := newIntake(t, intake.Config{}).Take(ctx, job.RemoveBG, intake.Source{Bytes: body}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that it was cancelled", err)
	}
}

func TestImage_gives_independent_readers(t *testing.T) {
	t.Parallel()
	sent := photo(t, "chelsea.png")
	image, err := newIntake(t, intake.Config{}).Take(t.Context(), job.RemoveBG, intake.Source{Bytes: bytes.NewReader(sent)})
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	first, second := image.Reader(), image.Reader()
	if _, err := first.Seek(-5, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, second, 7); err != nil {
		t.Fatal(err)
	}
	tail, err := io.ReadAll(first)
	if err != nil || !bytes.Equal(sent[len(sent)-5:], tail) {
		t.Errorf("the first reader gave %x, %v", tail, err)
	}
	holds(t, image, sent)
}

// Not parallel: it measures what the whole process allocates.
func TestIntake_takes_20_MB_to_the_byte_without_a_copy_in_memory(t *testing.T) {
	in := newIntake(t, intake.Config{})
	sent := padded(photo(t, "chelsea.png"), job.MaxImageBytes)
	text := base64Of(sent)
	for name, read := range map[string]func() (*intake.Image, error){
		"bytes": func() (*intake.Image, error) {
			return in.Take(t.Context(), job.RemoveBG, intake.Source{Bytes: bytes.NewReader(sent)})
		},
		"base64": func() (*intake.Image, error) { return in.Take(t.Context(), job.RemoveBG, intake.Source{Base64: text}) },
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		image, err := read()
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
			t.Errorf("%s: %d bytes allocated for an image of %d", name, used, len(sent))
		}
		holds(t, image, sent)
		if err := image.Close(); err != nil {
			t.Error(err)
		}
	}
}

// FuzzRead holds that bytes never do more than be refused as an image, and that
// what is accepted is kept unchanged.
func FuzzRead(f *testing.F) {
	for _, file := range []string{"chelsea.png", "astronaut.jpg", "coffee.webp"} {
		b, err := os.ReadFile("../../testdata/images/" + file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:min(len(b), 2000)])
	}
	f.Add([]byte("RIFF\x04\x00\x00\x00WEBPVP8X"))
	f.Add([]byte("\xff\xd8\xff\xe0"))
	f.Add([]byte("GIF89a"))
	f.Add([]byte{})
	in, err := intake.New(intake.Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		image, err := in.Take(t.Context(), job.Upscale4x, intake.Source{Bytes: bytes.NewReader(b)})
		if err != nil {
			if code := fault.From(err).Code; code != fault.InvalidImage && code != fault.MissingImage {
				t.Fatalf("%d bytes gave %v", len(b), err)
			}
			return
		}
		defer image.Close()
		holds(t, image, b)
		if image.Width < 1 || image.Height < 1 || image.Width > 4096 || image.Height > 4096 {
			t.Errorf("accepted %d x %d pixels", image.Width, image.Height)
		}
	})
}

func newIntake(t *testing.T, c intake.Config) *intake.Intake {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	in, err := intake.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func refused(t *testing.T, err error, code fault.Code, message string) {
	t.Helper()
	if err == nil {
		t.Fatalf("it was accepted, want %s", code)
	}
	got := fault.From(err)
	if got.Code != code || !strings.Contains(got.Message, message) {
		t.Errorf("refused with %s %q (%v), want %s saying %q", got.Code, got.Message, err, code, message)
	}
}

func holds(t *testing.T, image *intake.Image, want []byte) {
	t.Helper()
	got, err := io.ReadAll(image.Reader())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) || image.Size != int64(len(want)) || image.SHA256 != sha256.Sum256(want) {
		t.Errorf("%d bytes came out as %d, with size %d and hash %x", len(want), len(got), image.Size, image.SHA256)
	}
}

func photo(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("../../testdata/images/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// padded is a picture with zeros after its end, which every reader of pictures
// skips.
func padded(b []byte, size int) []byte {
	return append(bytes.Clone(b), make([]byte, size-len(b))...)
}

// sized is a PNG that says that it has other dimensions than it has.
func sized(png []byte, width, height uint32) []byte {
	b := bytes.Clone(png)
	binary.BigEndian.PutUint32(b[16:], width)
	binary.BigEndian.PutUint32(b[20:], height)
	binary.BigEndian.PutUint32(b[29:], crc32.ChecksumIEEE(b[12:29]))
	return b
}

// animated is a PNG that says that it has frames.
func animated(png []byte, frames uint32) []byte {
	const afterIHDR = 33
	chunk := []byte("\x00\x00\x00\x08acTL\x00\x00\x00\x00\x00\x00\x00\x00")
	binary.BigEndian.PutUint32(chunk[8:], frames)
	chunk = binary.BigEndian.AppendUint32(chunk, crc32.ChecksumIEEE(chunk[4:]))
	return append(append(bytes.Clone(png[:afterIHDR]), chunk...), png[afterIHDR:]...)
}

// animatedWebP shows the photograph of a file twice.
func animatedWebP(t *testing.T) []byte {
	still := photo(t, "coffee.webp")
	if string(still[12:16]) != "VP8 " {
		t.Fatalf("coffee.webp begins with a %q chunk", still[12:16])
	}
	bitstream := still[12:]
	size := []byte{599 & 0xff, 599 >> 8, 0, 399 & 0xff, 399 >> 8, 0} // 600 x 400
	frame := append(append(make([]byte, 6), size...), 100, 0, 0, 0)  // at 0, 0 for 100 ms
	frame = append(frame, bitstream...)
	chunks := riff("VP8X", append([]byte{0x02, 0, 0, 0}, size...))
	chunks = append(chunks, riff("ANIM", make([]byte, 6))...)
	chunks = append(chunks, riff("ANMF", frame)...)
	chunks = append(chunks, riff("ANMF", frame)...)
	return riff("RIFF", append([]byte("WEBP"), chunks...))
}

func riff(name string, b []byte) []byte {
	out := binary.LittleEndian.AppendUint32([]byte(name), uint32(len(b)))
	out = append(out, b...)
	return append(out, make([]byte, len(b)%2)...)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// onRead calls a func when it is read, and has no bytes.
type onRead func()

func (f onRead) Read([]byte) (int, error) { f(); return 0, io.EOF }
