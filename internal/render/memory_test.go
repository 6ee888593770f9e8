package render_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"pictor/internal/job"
	"pictor/internal/onnx"
	"pictor/internal/render"
	"pictor/internal/vips"
)

// TestMain is also the process whose memory the benchmarks measure.
func TestMain(m *testing.M) {
	var err error
	switch {
	case os.Getenv("PICTOR_BENCH_TASK") != "":
		err = renderAlone(job.Task(os.Getenv("PICTOR_BENCH_TASK")), os.Getenv("PICTOR_BENCH_FILE"))
	case os.Getenv("PICTOR_BENCH_FOLDER") != "":
		err = renderMixed(os.Getenv("PICTOR_BENCH_FOLDER"))
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child runs this program as such a process and returns the numbers it prints,
// in kB.
func child(b *testing.B, env ...string) []int {
	b.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), env...)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		b.Fatal(err)
	}
	var sizes []int
	for _, line := range strings.Fields(string(out)) {
		var kB int
		if _, err := fmt.Sscan(line, &kB); err != nil {
			b.Fatal(err)
		}
		sizes = append(sizes, kB)
	}
	return sizes
}

// asWorker sets up what the worker has, in its order: libvips bounds malloc.
func asWorker() (*render.Renderer, error) {
	if err := vips.Start(vips.Config{}); err != nil {
		return nil, err
	}
	e, err := onnx.Open(onnx.Config{Engine: onnx.Runtime})
	if err != nil {
		return nil, err
	}
	return render.New(render.Config{Engine: e})
}

func renderAlone(task job.Task, file string) error {
	r, err := asWorker()
	if err != nil {
		return err
	}
	in, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if _, err := r.Render(context.Background(), task, in, io.Discard, nil); err != nil {
		return err
	}
	return printMemory("VmHWM:")
}

const mixedRounds = 10

// renderMixed renders each picture of a folder in each round, several side by
// side, and prints the resident memory after every round.
func renderMixed(folder string) error {
	r, err := asWorker()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		return err
	}
	for range mixedRounds {
		next := make(chan int)
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for i := range next {
					in, err := os.ReadFile(files[i])
					if err == nil {
						_, err = r.Render(context.Background(), job.Tasks()[i%len(job.Tasks())], in, io.Discard, nil)
					}
					if err != nil {
						fmt.Fprintln(os.Stderr, err)
						os.Exit(1)
					}
				}
			})
		}
		for i := range files {
			next <- i
		}
		close(next)
		group.Wait()
		debug.FreeOSMemory() // or what garbage there happens to be would count
		if err := printMemory("VmRSS:"); err != nil {
			return err
		}
	}
	return nil
}

func printMemory(which string) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(status), which)
	fmt.Println(strings.Fields(rest)[0])
	return nil
}

// BenchmarkSteadyMemory reports the resident memory of a process after 40 and
// after 200 mixed pictures, and the one as a multiple of the other.
func BenchmarkSteadyMemory(b *testing.B) {
	folder := b.TempDir()
	for i := range 200 / mixedRounds {
		p := stretched(decoded(b, photo(b, photos(b)[i%len(photos(b))])), 60+20*i, 440-20*i)
		var in []byte
		switch i % 4 {
		case 0, 1:
			in = asPNG(b, p)
		default:
			in = asWebP(b, p)
		}
		if i%5 == 0 {
			in = largePhoto(b, 200+20*i, 150+15*i) // JPEG
		}
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%02d", i)), bytes.Clone(in), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		kB := child(b, "PICTOR_BENCH_FOLDER="+folder)
		b.ReportMetric(float64(kB[1])/1024, "second-MB")
		b.ReportMetric(float64(kB[len(kB)-1])/1024, "last-MB")
		b.ReportMetric(float64(kB[len(kB)-1])/float64(kB[1]), "x-second")
	}
}
