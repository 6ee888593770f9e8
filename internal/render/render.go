// Package render is the stage that works on pictures: a task and the bytes of
// an image in, the bytes of the result out. It knows no database, no queue and
// no store.
//
// A Renderer may be used by any number of goroutines. All of them together run
// the models on at most Config.Threads threads, which bounds both CPU and
// memory. Memory per picture is the decoded input, a working copy of at most
// 1024 pixels a side, and strips of the result; the result is never whole.
//
// Errors are of two kinds: a *Failure says that the picture is to blame, and
// the same picture will fail again; any other error may pass when tried again.
package render

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sync/semaphore"

	"pictor/internal/job"
	"pictor/internal/models"
	"pictor/internal/onnx"
	"pictor/internal/vips"
)

// Config is what a Renderer works with.
type Config struct {
	Engine onnx.Engine
	// Models are the models of the tasks that can be rendered, one for each;
	// nil for the shipped ones.
	Models []models.Description
	// Threads is how many threads work at most; 0 for one per CPU.
	Threads int
	// Dir holds temporary files, up to three bytes per pixel of a result, and
	// while a JPEG of several passes is decoded up to eight per pixel of it; empty
	// for the system's folder.
	Dir string
	// PlainEdges leaves the edges of a cut-out as the enlarged mask has them, with
	// the colours of the picture: what refining them costs and gains is measured
	// against it.
	PlainEdges bool
	// Stage, when set, is told how long each stage of a picture took, once the
	// picture is done or given up.
	Stage func(context.Context, job.Task, Lap)
}

// Renderer renders tasks.
type Renderer struct {
	models  map[job.Task]model
	threads int
	dir     string
	plain   bool // edges
	stage   func(context.Context, job.Task, Lap)
	slots   *semaphore.Weighted // one per thread that may run a model
}

type model struct {
	models.Description
	onnx.Model
	cropped bool // what it gives lacks the margin of what it was given
	block   int  // pixels of its output that lie in as many bands: see onnx.Trimmed
}

// errNoNumber says that a model gave NaN or infinity, as some GPUs do at times:
// the same picture may succeed when tried again.
var errNoNumber = errors.New("the result has values that are no numbers")

// Result tells what was written.
type Result struct {
	Type          string // job.PNG, job.JPEG or job.WebP
	Width, Height int
}

// Failure says that the picture is to blame.
type Failure struct {
	Message string // a sentence for the client
	cause   error
}

func (f *Failure) Error() string {
	if f.cause != nil {
		return f.Message + ": " + f.cause.Error()
	}
	return f.Message
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.cause }

// New loads the models.
func New(cfg Config) (*Renderer, error) {
	if cfg.Engine == nil {
		return nil, errors.New("render: no engine")
	}
	if cfg.Models == nil {
		cfg.Models = models.Default()
	}
	if cfg.Threads < 1 {
		cfg.Threads = runtime.GOMAXPROCS(0)
	}
	if cfg.Dir == "" {
		cfg.Dir = os.TempDir()
	}
	r := &Renderer{
		models:  map[job.Task]model{},
		threads: cfg.Threads,
		dir:     cfg.Dir,
		plain:   cfg.PlainEdges,
		stage:   cfg.Stage,
		slots:   semaphore.NewWeighted(int64(cfg.Threads)),
	}
	for _, d := range cfg.Models {
		m, err := load(cfg, d)
		if err != nil {
			r.Close()
			return nil, err
		}
		r.models[d.Task] = m
	}
	return r, nil
}

func load(cfg Config, d models.Description) (model, error) {
	if d.RuntimeOnly && cfg.Engine.Name() == onnx.Go {
		return model{}, fmt.Errorf("the model %s needs ONNX Runtime: %s lacks operators of it", d.Name, onnx.Go)
	}
	file, err := d.Bytes()
	if err != nil {
		return model{}, err
	}
	m := model{Description: d, block: 1}
	if d.Margin > 0 {
		// Some models cannot be trimmed, or see farther than their margin.
		if t, err := onnx.Trim(file); err == nil && t.Margin == d.Margin {
			file, m.cropped, m.block = t.File, true, t.Block
		}
	}
	opt := onnx.Options{Input: [4]int{1, 3, d.Side, d.Side}}
	if d.Alone {
		opt.Threads = cfg.Threads
	}
	m.Model, err = cfg.Engine.Load(d.Name, file, opt)
	return m, err
}

// Close releases the models. No Render may be going on or follow.
func (r *Renderer) Close() error {
	var errs []error
	for _, m := range r.models {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// Render does the task on the image and writes the result to out. What was
// written before an error is worth nothing.
//
// progress, which may be nil, is called with growing percentages of the work
// that is done, never from two goroutines at once. After ctx is cancelled,
// Render returns ctx's error within the time of one tile.
func (r *Renderer) Render(ctx context.Context, task job.Task, in []byte, out io.Writer, progress func(percent int)) (Result, error) {
	m, ok := r.models[task]
	if !ok {
		return Result{}, fmt.Errorf("render: no model for the task %q", task)
	}
	steps := &steps{report: progress, laps: newLaps()}
	defer steps.laps.tell(ctx, task, r.stage)
	steps.laps.begin(Decode)
	if task == job.RemoveBG {
		return r.removeBG(ctx, m, in, out, steps)
	}
	return r.upscale(ctx, m, in, out, steps)
}

// decode makes pixels of the image, or says what is wrong with it.
func (r *Renderer) decode(ctx context.Context, in []byte, progress func(percent int)) (*vips.Picture, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := vips.DecodeContext(ctx, in, r.dir, progress)
	return p, failure(err)
}

// failure makes a Failure of an error that blames the picture.
func failure(err error) error {
	if bad, ok := errors.AsType[*vips.Error](err); ok {
		return &Failure{Message: bad.Message, cause: errors.Unwrap(bad)}
	}
	return err
}

// run runs a model when one of the renderer's threads is free, or all of them
// for a model that uses all.
func (r *Renderer) run(ctx context.Context, m model, in, out onnx.Tensor) error {
	threads := int64(1)
	if m.Alone {
		threads = int64(r.threads)
	}
	if err := r.slots.Acquire(ctx, threads); err != nil {
		return err
	}
	defer r.slots.Release(threads)
	if err := ctx.Err(); err != nil { // a thread may be free although ctx is done
		return err
	}
	return m.Run(ctx, in, out)
}

// steps counts work done and reports the percentage when it grows. It also
// carries the laps.
type steps struct {
	report func(percent int)
	laps   *laps

	mu          sync.Mutex
	done, total int
	last        int
}

// of sets how much work there is.
func (s *steps) of(total int) { s.total = total }

// add counts n pieces of work as done.
func (s *steps) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done += n
	if percent := min(s.done*100/max(s.total, 1), 100); percent > s.last {
		s.last = percent
		if s.report != nil {
			s.report(percent)
		}
	}
}

// part is for a piece of the work that reports its own percentages: all of it
// counts for n.
func (s *steps) part(n int) func(percent int) {
	counted := 0
	return func(percent int) {
		s.add(percent*n/100 - counted)
		counted = percent * n / 100
	}
}

// finish counts all the work as done.
func (s *steps) finish() { s.add(s.total - s.done) }
