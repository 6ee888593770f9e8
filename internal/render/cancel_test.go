package render_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"testing"

	"pictor/internal/job"
	"pictor/internal/onnx"
)

// A job that another worker took over stops wherever it is: while it decodes,
// between two tiles, while it paints and while it encodes. Every look at the
// progress is a place to be cancelled at; how a model stops in the middle is
// tested with the engines.
func TestRender_stops_wherever_it_is_cancelled(t *testing.T) {
	t.Parallel()
	picture := cropped(decoded(t, photo(t, "astronaut.jpg")), 64, 48)
	files := map[string][]byte{"PNG": asPNG(t, picture), "JPEG": asJPEG(t, picture), "WebP": asWebP(t, picture)}
	for _, engine := range []string{onnx.Runtime, onnx.Go} {
		e, err := onnx.Open(onnx.Config{Engine: engine})
		if err != nil {
			t.Fatal(err)
		}
		r := with(t, e)
		for _, task := range job.Tasks() {
			for kind, in := range files {
				if engine == onnx.Go && kind != "PNG" {
					continue // what stops the codecs is the same code
				}
				t.Run(fmt.Sprint(engine, " ", task, " ", kind), func(t *testing.T) {
					var all []int
					if _, err := r.Render(t.Context(), task, in, io.Discard, func(p int) { all = append(all, p) }); err != nil {
						t.Fatal(err)
					}
					each := max(1, len(all)/6)
					for at := 0; at < len(all)-1; at += each { // the last is the end
						ctx, cancel := context.WithCancel(t.Context())
						after := 0
						_, err := r.Render(ctx, task, in, &bytes.Buffer{}, func(p int) {
							if p >= all[at] {
								cancel()
								after++
							}
						})
						cancel()
						// Two threads may each be at the end of a tile, and the matte is made in one go.
						if !errors.Is(err, context.Canceled) || after > 3 {
							t.Errorf("cancelled at %d %%: %v after %d more steps, want context.Canceled at once", all[at], err, after-1)
						}
					}
				})
			}
		}
	}
}

// Between two reports lies no more than a strip of a megapixel, a tile or a run
// of the model, each well below a second of work: what a client sees moves.
func TestRender_reports_progress_all_the_time(t *testing.T) {
	t.Parallel()
	r := with(t, constant(0.5))
	for task, size := range map[job.Task]image.Point{job.RemoveBG: {2000, 1600}, job.Upscale2x: {1500, 500}} {
		var in bytes.Buffer
		if err := jpeg.Encode(&in, image.NewGray(image.Rectangle{Max: size}), nil); err != nil {
			t.Fatal(err)
		}
		var got []int
		if _, err := r.Render(t.Context(), task, in.Bytes(), io.Discard, func(p int) { got = append(got, p) }); err != nil {
			t.Fatal(err)
		}
		last := 0
		for _, p := range got {
			if p-last > 25 {
				t.Errorf("%s: went from %d %% to %d %% at once: %v", task, last, p, got)
			}
			last = p
		}
	}
}
