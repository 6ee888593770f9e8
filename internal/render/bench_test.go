package render_test

import (
	"bytes"
	"fmt"
	"image/jpeg"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/h2non/bimg"

	"pictor/internal/job"
	"pictor/internal/models"
	"pictor/internal/onnx"
	"pictor/internal/render"
	"pictor/internal/testkit/cputime"
	"pictor/internal/vips"
)

// The benchmarks report CPU time, not the clock's, as ratios against a floor
// that is measured in the same run: the machine may be slow or shared.

// BenchmarkRemoveBG_12MP reports x-floor: the CPU time of the whole task over
// that of one decoding, the tensor, both runs of the model and one pass that
// writes the enlarged mask; and x-libvips: over the same with the PNG written by
// libvips at level 6 with all filters, out of the result's own pixels. x-floor-plain
// is x-floor with edges that are not refined.
func BenchmarkRemoveBG_12MP(b *testing.B) {
	r, plain, in := newRenderer(b), withPlainEdges(b), largePhoto(b, 4032, 3024)
	m, side := load(b, models.Shipped()[0]), models.Shipped()[0].Side
	var floor, task, withoutRefining, libvips time.Duration
	for b.Loop() {
		var p *vips.Picture
		answer := onnx.NewTensor(1, 1, side, side)
		before := cputime.Of(b, func() {
			p = decoded(b, in)
			tensor := onnx.NewTensor(1, 3, side, side)
			small := render.Shrink(p, side, side)
			for i, v := range small.Pix {
				tensor.Data[i%3*side*side+i/3] = float32(v) / 255
			}
			for range 2 {
				if err := m.Run(b.Context(), tensor, answer); err != nil {
					b.Fatal(err)
				}
			}
		})
		floor += before + cputime.Of(b, func() { writeMasked(b, p, answer.Data, side) })
		var result bytes.Buffer
		task += cputime.Of(b, func() {
			if _, err := r.Render(b.Context(), job.RemoveBG, in, &result, nil); err != nil {
				b.Fatal(err)
			}
		})
		withoutRefining += cputime.Of(b, func() {
			if _, err := plain.Render(b.Context(), job.RemoveBG, in, io.Discard, nil); err != nil {
				b.Fatal(err)
			}
		})
		libvips += before - cputime.Of(b, func() { decoded(b, result.Bytes()) }) // which bimg does, too
		libvips += cputime.Of(b, func() {
			options := bimg.Options{Type: bimg.PNG, Compression: 6, NoAutoRotate: true, StripMetadata: true}
			if _, err := bimg.Resize(result.Bytes(), options); err != nil {
				b.Fatal(err)
			}
		})
	}
	b.ReportMetric(float64(task.Milliseconds())/float64(b.N), "cpu-ms")
	b.ReportMetric(task.Seconds()/floor.Seconds(), "x-floor")
	b.ReportMetric(withoutRefining.Seconds()/floor.Seconds(), "x-floor-plain")
	b.ReportMetric(task.Seconds()/libvips.Seconds(), "x-libvips")
}

// writeMasked is the least that writes a cut-out: the mask enlarged between its
// pixels, and the picture's pixels beside it.
func writeMasked(b *testing.B, p *vips.Picture, mask []float32, side int) {
	w, err := vips.NewPNGWriter(io.Discard, p.Width, p.Height, 4, vips.PNGOptions{Threads: 2})
	if err != nil {
		b.Fatal(err)
	}
	row := make([]byte, 4*p.Width)
	position := func(i, n int) (int, float32) {
		at := min(max((float32(i)+0.5)*float32(side)/float32(n)-0.5, 0), float32(side-1)-0.001)
		return int(at), at - float32(int(at))
	}
	for y := range p.Height {
		my, fy := position(y, p.Height)
		above, below := mask[my*side:], mask[(my+1)*side:]
		for x := range p.Width {
			mx, fx := position(x, p.Width)
			top, bottom := above[mx]+fx*(above[mx+1]-above[mx]), below[mx]+fx*(below[mx+1]-below[mx])
			out := row[4*x : 4*x+4]
			if a := byte(255*(top+fy*(bottom-top)) + 0.5); a > 4 {
				px := p.Pix[3*(y*p.Width+x):]
				out[0], out[1], out[2], out[3] = px[0], px[1], px[2], a
			} else {
				clear(out)
			}
		}
		if err := w.WriteRows(row); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkUpscale reports of-raw: the rate of enlarged pixels over that of the
// shipped model alone on tiles of 256 x 256, on as many threads, decoding and
// encoding taken out; and of-raw-whole, with decoding and encoding to PNG.
//
// Each is the median of rounds in which both are measured, one right after the
// other: what else runs on the machine slows both down.
func BenchmarkUpscale(b *testing.B) {
	for _, d := range models.Shipped()[1:] {
		b.Run(d.Name, func(b *testing.B) {
			const w, h, rounds = 1024, 768, 5
			r, m := withModel(b, d), load(b, d)
			in := asPNG(b, decoded(b, largePhoto(b, w, h)))
			var result bytes.Buffer
			enlarge := func() {
				result.Reset()
				if _, err := r.Render(b.Context(), d.Task, in, &result, nil); err != nil {
					b.Fatal(err)
				}
			}
			enlarge()
			enlarged := decoded(b, result.Bytes())
			var ofRaw, whole []float64
			for b.Loop() {
				for range rounds {
					const tiles = w * h / (256 * 256)
					raw := cputime.Of(b, func() { runTiles(b, m, d.Scale, tiles) })
					task := cputime.Of(b, enlarge)
					around := cputime.Of(b, func() {
						decoded(b, in)
						asPNG(b, enlarged)
					})
					ofRaw = append(ofRaw, raw.Seconds()/(task-around).Seconds())
					whole = append(whole, raw.Seconds()/task.Seconds())
				}
			}
			b.ReportMetric(median(ofRaw), "of-raw")
			b.ReportMetric(median(whole), "of-raw-whole")
		})
	}
}

// runTiles runs the model on tiles of 256 x 256, one at a time on each CPU.
func runTiles(b *testing.B, m onnx.Model, scale, tiles int) {
	var next atomic.Int32
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			in, out := onnx.NewTensor(1, 3, 256, 256), onnx.NewTensor(1, 3, 256*scale, 256*scale)
			for i := range in.Data {
				in.Data[i] = float32(i%251) / 250
			}
			for int(next.Add(1)) <= tiles {
				if err := m.Run(b.Context(), in, out); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// BenchmarkPeakMemory reports the largest resident memory of a process that
// does one task, its libraries included.
func BenchmarkPeakMemory(b *testing.B) {
	for _, test := range []struct {
		task job.Task
		w, h int
		png  bool
	}{
		{job.RemoveBG, 4032, 3024, false},
		{job.Upscale2x, 4096, 3072, true},
		{job.Upscale4x, 4096, 3072, true},
		{job.Upscale4x, 4096, 3072, false},
	} {
		name := fmt.Sprintf("%s_%dx%d", test.task, test.w, test.h)
		in := largePhoto(b, test.w, test.h)
		if test.png {
			name, in = name+"_png", asPNG(b, decoded(b, in))
		}
		file := filepath.Join(b.TempDir(), "in")
		if err := os.WriteFile(file, in, 0o600); err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			var peak int
			for b.Loop() {
				peak = max(peak, child(b, "PICTOR_BENCH_TASK="+string(test.task), "PICTOR_BENCH_FILE="+file)[0])
			}
			b.ReportMetric(float64(peak)/1024, "peak-MB")
		})
	}
}

// largePhoto is a JPEG with a subject, enlarged from the test photographs and
// grained like a camera's, so that it does not compress too well.
func largePhoto(b *testing.B, w, h int) []byte {
	p := compose(b, w, h).picture
	r := rand.New(rand.NewPCG(1, 2))
	for i, v := range p.Pix {
		p.Pix[i] = byte(min(max(int(v)+r.IntN(7)-3, 0), 255))
	}
	var out bytes.Buffer
	if err := jpeg.Encode(&out, toImage(p), &jpeg.Options{Quality: 92}); err != nil {
		b.Fatal(err)
	}
	return out.Bytes()
}

func load(b *testing.B, d models.Description) onnx.Model {
	file, err := d.Bytes()
	if err != nil {
		b.Fatal(err)
	}
	m, err := onnxRuntime(b).Load(d.Name, file, onnx.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close() })
	return m
}
