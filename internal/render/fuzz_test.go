package render_test

import (
	"bytes"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/h2non/bimg"

	"pictor/internal/job"
	"pictor/internal/render"
	"pictor/internal/vips"
)

// FuzzRender feeds every task with photographs that were changed at will: it
// must answer with a picture or a Failure that says what is wrong, and leave
// neither goroutines nor memory of libvips behind.
func FuzzRender(f *testing.F) {
	small := cropped(decoded(f, photo(f, "chelsea.png")), 40, 30)
	plain := asPNG(f, small)
	seeds := [][]byte{plain, asWebP(f, small), asJPEG(f, small), asPNG(f, cropped(decoded(f, photo(f, "camera.png")), 40, 30))}
	for _, as := range []bimg.Options{{Type: bimg.PNG, Interlace: true}, {Type: bimg.JPEG, Interlace: true}, {Type: bimg.WEBP, Quality: 60}} {
		as.NoAutoRotate = true
		b, err := bimg.Resize(plain, as)
		if err != nil {
			f.Fatal(err)
		}
		seeds = append(seeds, b)
	}
	for _, b := range seeds {
		f.Add(b)
	}
	r := with(f, constant(0.5))
	var out bytes.Buffer
	before := runtime.NumGoroutine()
	f.Fuzz(func(t *testing.T, in []byte) {
		if h, err := vips.ReadHeader(in); err == nil && h.Width*h.Height > 20_000 {
			return // right or wrong, but slow
		}
		held, _ := vips.Memory()
		for _, task := range job.Tasks() {
			out.Reset()
			result, err := r.Render(t.Context(), task, in, &out, nil)
			if err != nil {
				if failure, ok := errors.AsType[*render.Failure](err); !ok || failure.Message == "" {
					t.Fatalf("%s: %v blames no picture", task, err)
				}
				continue
			}
			if h, err := vips.ReadHeader(out.Bytes()); err != nil || h.Width != result.Width || h.Height != result.Height || h.Type != result.Type {
				t.Fatalf("%s: wrote %+v, %v, told %+v", task, h, err, result)
			}
		}
		// A thread of libvips that once called Go counts for some seconds after.
		const threads = 16
		for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before+threads; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("%d goroutines, %d before the first picture", runtime.NumGoroutine(), before)
			}
		}
		if now, _ := vips.Memory(); now > held {
			t.Fatalf("libvips holds %d bytes, %d before", now, held)
		}
	})
}
