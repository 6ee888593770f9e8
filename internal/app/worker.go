package app

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"pictor/internal/bus"
	"pictor/internal/job"
	"pictor/internal/onnx"
	"pictor/internal/render"
	"pictor/internal/vips"
	"pictor/internal/work"
)

// WorkerConfig is what `pictor worker` is configured by.
type WorkerConfig struct {
	Pictures
	Ops

	// TempDir holds results while they are made; empty is the system's.
	TempDir string `kong:"-"`
	// Inside says that the worker is a part of `pictor dev`, which has an ops
	// listener already and does not wait long when it stops.
	Inside bool `kong:"-"`
}

// Mistakes names every mistake, not only the first.
func (c WorkerConfig) Mistakes() error { return errors.Join(c.Pictures.Mistakes(), c.Ops.Mistakes()) }

// Worker is `pictor worker`: it takes jobs from the queue.
type Worker struct {
	OpsURL string

	log     *slog.Logger
	ops     *ops
	metrics *workerMetrics
	opsS    *server
	worker  *work.Worker
	check   func(context.Context) error // of the models
	tested  atomic.Pointer[error]       // what it said; nil until then
	working *loop
	failed  chan error
	closers closers
}

// NewWorker puts a worker together.
func NewWorker(ctx context.Context, c WorkerConfig, stores Stores, log *slog.Logger) (_ *Worker, err error) {
	w := &Worker{log: log, ops: new(ops), metrics: newWorkerMetrics(), working: new(loop), failed: make(chan error, 2)}
	defer func() {
		if err != nil {
			w.closers.close()
		}
	}()
	if !c.Inside {
		on, err := listen("PICTOR_OPS_LISTEN", c.OpsListen, defaultOps, anyPort)
		if err != nil {
			return nil, err
		}
		w.closers.add(func() { _ = on.Close() })
		w.opsS = newServer("ops", on, w.ops.handler(), log)
		w.OpsURL = w.opsS.url()
	}
	name, err := processName("worker")
	if err != nil {
		return nil, err
	}
	if err := vips.Start(vips.Config{}); err != nil {
		return nil, err
	}
	traces, err := newTraces(ctx, name, log)
	if err != nil {
		return nil, err
	}
	w.closers.add(func() { traces.stop(log) })
	p, opened, err := openParts(ctx, stores, name, traces, log)
	if err != nil {
		return nil, err
	}
	w.closers.add(opened.close)
	stage := func(ctx context.Context, t job.Task, lap render.Lap) {
		if w.tested.Load() == nil {
			return // a stage of the self-test
		}
		w.metrics.stage(t, lap)
		traces.stage(ctx, lap)
	}
	engine, renderer, err := newRenderer(c.Pictures, c.TempDir, stage)
	if err != nil {
		return nil, err
	}
	w.closers.add(func() { _ = engine.Close() })
	w.closers.add(func() { _ = renderer.Close() })
	w.check = renderer.Check
	w.ops.checks, w.ops.metrics = append(p.checks(), check{"models", w.models}), []*metrics{runtimeMetrics(), w.metrics.metrics}
	patience := grace
	if c.Inside {
		patience = devGrace
	}
	w.worker = work.New(work.Config{
		Name: name, Tasks: c.tasks(), Slots: c.workers(), Dir: c.TempDir,
		Lease: lease, Beat: beat, Grace: patience, Stage: stage,
		Claimed: func(ctx context.Context, j job.Job, m bus.Message) context.Context {
			w.metrics.claimed(j)
			return traces.claimed(ctx, j, m)
		},
		Ended: func(ctx context.Context, t job.Task, o work.Outcome, took time.Duration) {
			w.metrics.ended(t, o, took)
			traces.ended(ctx, o)
		},
		Buried: w.metrics.buried,
	}, p.db, p.queue, p.store, renderer, log)
	w.metrics.slots.WithLabelValues().Set(float64(c.workers()))
	w.metrics.engine.WithLabelValues(engine.Name(), engine.Provider()).Set(1)
	w.ops.models = make(map[job.Task]string)
	for _, task := range c.tasks() {
		w.ops.models[task] = c.names()[task]
		w.metrics.model.WithLabelValues(string(task), c.names()[task]).Set(1)
	}
	log.Info("the models are loaded", "models", c.inUse(c.tasks()), "engine", engine.Name(), "provider", engine.Provider(), "workers", c.workers())
	return w, nil
}

const (
	// lease is how long a claim holds without a heartbeat: the time after which
	// the job of a dead worker is taken over.
	lease = 15 * time.Second
	beat  = 2 * time.Second
)

// Start begins to take jobs once every model has passed a self-test. Failed
// tells when it cannot go on.
func (w *Worker) Start() {
	if w.opsS != nil {
		go func() { w.failed <- w.opsS.serve() }()
	}
	w.working.run(func(ctx context.Context) {
		err := w.check(ctx)
		w.tested.Store(&err)
		if err != nil {
			if ctx.Err() == nil {
				w.failed <- err
			}
			return
		}
		if w.opsS != nil { // else the process has others' work, too
			debug.FreeOSMemory()
			releaseStartPages()
		}
		w.ops.ready.Store(true)
		w.log.Info("the worker takes jobs", "ops_url", w.OpsURL)
		w.worker.Run(ctx)
	})
}

// models says whether the models have shown that they work.
func (w *Worker) models(context.Context) error {
	if said := w.tested.Load(); said != nil {
		return *said
	}
	return errors.New("the self-test has not ended")
}

// Failed delivers the error of the self-test, or of the ops server that cannot
// go on, and nil when that was stopped.
func (w *Worker) Failed() <-chan error { return w.failed }

// Stop takes no more jobs, and returns when every running picture is finished
// or given back.
func (w *Worker) Stop() {
	w.ops.ready.Store(false)
	w.working.stop()
	if w.opsS != nil {
		w.opsS.stop(w.log)
	}
	w.closers.close()
	w.log.Info("the worker has stopped")
}

// Run works until ctx is done.
func (w *Worker) Run(ctx context.Context) error {
	w.Start()
	var err error
	select {
	case <-ctx.Done():
	case err = <-w.failed:
	}
	w.Stop()
	return err
}

// newRenderer loads the engine and the models of the worker's tasks. stage, which may be
// nil, is told of every stage of a picture.
func newRenderer(c Pictures, dir string, stage func(context.Context, job.Task, render.Lap)) (onnx.Engine, *render.Renderer, error) {
	chosen, err := c.chosen(c.tasks())
	if err != nil {
		return nil, nil, err
	}
	// One thread for one run of a model: pictures, and the tiles of one picture,
	// run side by side instead.
	engine, err := onnx.Open(onnx.Config{Engine: c.Engine, Library: c.ORTLib, Threads: 1})
	if err != nil {
		return nil, nil, err
	}
	renderer, err := render.New(render.Config{Engine: engine, Models: chosen, Dir: dir, Stage: stage})
	if err != nil {
		_ = engine.Close()
		return nil, nil, err
	}
	return engine, renderer, nil
}
