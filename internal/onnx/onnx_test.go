package onnx_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/onnx"
)

// What every engine must do.
func eachEngine(t *testing.T, test func(t *testing.T, engine string)) {
	t.Parallel()
	for _, engine := range []string{onnx.Runtime, onnx.Go} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			test(t, engine)
		})
	}
}

func TestRun_enlarges_any_size(t *testing.T) { eachEngine(t, enlargesAnySize) }

func enlargesAnySize(t *testing.T, engine string) {
	m := load(t, engine, "upscale-2x.onnx")
	for _, size := range [][2]int{{17, 17}, {17, 316}, {64, 48}} {
		in, out := noise(size[0], size[1]), onnx.NewTensor(1, 3, 2*size[0], 2*size[1])
		if err := m.Run(t.Context(), in, out); err != nil {
			t.Fatal(err)
		}
		if got, want := mean(out.Data), mean(in.Data); math.Abs(got-want) > 0.02 {
			t.Errorf("%v: mean %.3f, want about %.3f", size, got, want)
		}
	}
}

func TestRun_gives_the_same_from_many_goroutines(t *testing.T) { eachEngine(t, givesTheSame) }

func givesTheSame(t *testing.T, engine string) {
	m := load(t, engine, "upscale-4x.onnx")
	in, want := noise(48, 40), onnx.NewTensor(1, 3, 192, 160)
	if err := m.Run(t.Context(), in, want); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			got := onnx.NewTensor(1, 3, 192, 160)
			if err := m.Run(t.Context(), in, got); err != nil {
				t.Error(err)
			} else if !cmp.Equal(want, got) {
				t.Error("a concurrent run gave other values")
			}
		})
	}
	wg.Wait()
}

func TestRun_refuses_tensors_of_a_wrong_shape(t *testing.T) { eachEngine(t, refusesWrongShapes) }

func refusesWrongShapes(t *testing.T, engine string) {
	m := load(t, engine, "upscale-2x.onnx")
	for name, out := range map[string]onnx.Tensor{
		"shape the model does not give": onnx.NewTensor(1, 3, 34, 33),
		"data shorter than the shape":   {Shape: [4]int{1, 3, 34, 34}, Data: make([]float32, 7)},
		"empty":                         {},
	} {
		if err := m.Run(t.Context(), noise(17, 17), out); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestRun_stops_when_cancelled(t *testing.T) { eachEngine(t, stopsWhenCancelled) }

func stopsWhenCancelled(t *testing.T, engine string) {
	m := load(t, engine, "upscale-2x.onnx")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Run(ctx, noise(17, 17), onnx.NewTensor(1, 3, 34, 34)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

// A run that has begun ends early: this one would take seconds.
func TestRun_stops_in_the_middle_when_cancelled(t *testing.T) { eachEngine(t, stopsInTheMiddle) }

func stopsInTheMiddle(t *testing.T, engine string) {
	m := load(t, engine, "upscale-2x.onnx")
	in, out := noise(1024, 1024), onnx.NewTensor(1, 3, 2048, 2048)
	ctx := &lateCancel{Context: t.Context(), done: make(chan struct{})}
	if err := m.Run(ctx, in, out); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

// lateCancel is cancelled as soon as anybody looks again: after the look at Err
// with which Run begins.
type lateCancel struct {
	context.Context
	looks atomic.Int32
	once  sync.Once
	done  chan struct{}
}

func (c *lateCancel) Done() <-chan struct{} {
	c.once.Do(func() { close(c.done) })
	return c.done
}

func (c *lateCancel) Err() error {
	if c.looks.Add(1) == 1 {
		return nil
	}
	<-c.Done()
	return context.Canceled
}

func TestEngines_agree_on_every_shipped_model(t *testing.T) {
	t.Parallel()
	for file, scale := range map[string]int{"remove-bg.onnx": 1, "upscale-2x.onnx": 2, "upscale-4x.onnx": 4} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			side, channels := 40, 3
			if file == "remove-bg.onnx" {
				side, channels = 256, 1
			}
			in := noise(side, side)
			want, got := onnx.NewTensor(1, channels, side*scale, side*scale), onnx.NewTensor(1, channels, side*scale, side*scale)
			if err := load(t, onnx.Runtime, file).Run(t.Context(), in, want); err != nil {
				t.Fatal(err)
			}
			if err := load(t, onnx.Go, file).Run(t.Context(), in, got); err != nil {
				t.Fatal(err)
			}
			var largest float64
			for i, v := range want.Data {
				largest = max(largest, math.Abs(float64(v-got.Data[i])))
			}
			if largest > 1e-3 {
				t.Errorf("the engines differ by up to %g", largest)
			}
		})
	}
}

func TestLoad_refuses_bytes_that_are_no_model(t *testing.T) { eachEngine(t, refusesBytes) }

func refusesBytes(t *testing.T, engine string) {
	_, err := open(t, engine).Load("broken", []byte("no model"), onnx.Options{})
	if err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("got %v, want an error that names the model", err)
	}
}

func TestOpen_refuses_an_unknown_engine(t *testing.T) {
	t.Parallel()
	if _, err := onnx.Open(onnx.Config{Engine: "torch"}); err == nil || !strings.Contains(err.Error(), "onnxruntime-cuda") {
		t.Errorf("got %v, want an error that lists the engines", err)
	}
}

func TestOpen_tells_how_to_install_a_missing_library(t *testing.T) {
	t.Parallel()
	_, err := onnx.Open(onnx.Config{Engine: onnx.Runtime, Library: filepath.Join(t.TempDir(), "none.so")})
	if err == nil || !strings.Contains(err.Error(), "go tool task setup") {
		t.Errorf("got %v, want an error that names the setup", err)
	}
}

// Without a GPU the engine must say so at the start, not compute on the CPU.
func TestOpen_never_gives_a_CPU_for_CUDA(t *testing.T) {
	t.Parallel()
	e, err := onnx.Open(onnx.Config{Engine: onnx.CUDA})
	if err != nil {
		if !strings.Contains(err.Error(), "CUDA") {
			t.Errorf("the error does not name CUDA: %v", err)
		}
		return
	}
	if e.Provider() != "CUDA" {
		t.Errorf("provider %s, want CUDA", e.Provider())
	}
}

func TestOpen_says_what_runs(t *testing.T) {
	t.Parallel()
	e := open(t, onnx.Runtime)
	if got := e.Name() + " " + e.Provider(); got != "onnxruntime CPU" {
		t.Errorf("got %q", got)
	}
	best := open(t, onnx.Auto)
	if !strings.HasPrefix(best.Name(), "onnxruntime") {
		t.Errorf("auto chose %q although ONNX Runtime is installed", best.Name())
	}
}

func TestFindLibrary_prefers_the_variable(t *testing.T) {
	// Not parallel: it sets an environment variable.
	t.Setenv("PICTOR_ORT_LIB", "/somewhere/libonnxruntime.so")
	got, err := onnx.FindLibrary()
	if err != nil || got != "/somewhere/libonnxruntime.so" {
		t.Errorf("got %q, %v", got, err)
	}
}

func BenchmarkRun_tile_256(b *testing.B) {
	for _, name := range []string{"upscale-2x.onnx", "upscale-4x.onnx"} {
		b.Run(name, func(b *testing.B) {
			m := load(b, onnx.Runtime, name)
			scale := 2
			if name == "upscale-4x.onnx" {
				scale = 4
			}
			in, out := noise(256, 256), onnx.NewTensor(1, 3, 256*scale, 256*scale)
			for b.Loop() {
				if err := m.Run(b.Context(), in, out); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(256*256/1e6*float64(b.N)/b.Elapsed().Seconds(), "Mpx/s")
		})
	}
}

func open(t testing.TB, engine string) onnx.Engine {
	t.Helper()
	e, err := onnx.Open(onnx.Config{Engine: engine})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func load(t testing.TB, engine, file string) onnx.Model {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "models", file))
	if err != nil {
		t.Fatal(err)
	}
	m, err := open(t, engine).Load(file, b, onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func noise(h, w int) onnx.Tensor {
	t := onnx.NewTensor(1, 3, h, w)
	r := rand.New(rand.NewPCG(uint64(h), uint64(w)))
	for i := range t.Data {
		t.Data[i] = r.Float32()
	}
	return t
}

func mean(values []float32) float64 {
	var sum float64
	for _, v := range values {
		sum += float64(v)
	}
	return sum / float64(len(values))
}
