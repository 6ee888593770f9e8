// Package work takes jobs from the queue and brings each to its end: claimed,
// rendered, and completed or failed and refunded.
//
// A claim raises the job's fence and starts a lease. Every later write names
// that fence, and the result is stored under a key that holds it, so that a
// worker that was thought dead can change nothing when it wakes up. Heartbeats
// extend the lease; a worker whose heartbeat finds another fence stops within
// one tile and drops what it has.
//
// A picture that kills its process takes the attempts of the pictures beside it
// with it. So the last attempt of every job is made in a process that works on
// nothing else: what then dies, dies of its own.
//
// What survives a crash at any point: the job stays processing until its lease
// ends, then the message that JetStream delivers again, or the sweeper, has it
// claimed anew under the next fence.
package work

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"pictor/internal/blob"
	"pictor/internal/bus"
	"pictor/internal/job"
	"pictor/internal/logctx"
	"pictor/internal/postgres"
	"pictor/internal/render"
)

// Config sizes a worker.
type Config struct {
	Name  string     // tells the processes apart; unique
	Tasks []job.Task // what this worker takes
	Slots int        // pictures at a time
	Dir   string     // for temporary files

	// Lease is how long a claim holds without a heartbeat; Beat is the time
	// between heartbeats, well below it.
	Lease, Beat time.Duration
	// Grace is how long running pictures may go on after Run was told to stop.
	// Those that need longer go back to the queue.
	Grace time.Duration

	// Claimed, when set, is told of every claim. What it returns is the context
	// of the work on it.
	Claimed func(context.Context, job.Job, bus.Message) context.Context
	// Stage, when set, is told how long the stages of a claim took that are not
	// the renderer's: Fetch and Store.
	Stage func(context.Context, job.Task, render.Lap)
	// Ended, when set, is told of every claim that ended, and how long it took.
	Ended func(context.Context, job.Task, Outcome, time.Duration)
	// Buried, when set, is told of every job that was not claimed but failed and
	// refunded, because no attempt on it came to an end.
	Buried func(job.Task)
}

// The stages of a claim besides those of package render.
const (
	Fetch render.Stage = "fetch" // the input is read
	Store render.Stage = "store" // the result is written
)

// Outcome is how a claim ended.
type Outcome string

// The outcomes.
const (
	Completed Outcome = "completed"
	Refused   Outcome = "refused"   // the picture cannot be worked on: failed and refunded
	GivenUp   Outcome = "given_up"  // the last attempt failed: failed and refunded
	Returned  Outcome = "returned"  // back in the queue: the worker stops, or tries again later
	Dropped   Outcome = "dropped"   // another worker has the job by now
	Unwritten Outcome = "unwritten" // the end could not be written; the lease ends by itself
)

// Outcomes lists all of them.
func Outcomes() []Outcome {
	return []Outcome{Completed, Refused, GivenUp, Returned, Dropped, Unwritten}
}

const (
	// settle bounds the writes that end a job, which must happen although the
	// worker was told to stop.
	settle = 10 * time.Second
	// retryDelay is the pause before a job whose failure is not its own (the
	// store, the database) is tried again.
	retryDelay = 2 * time.Second
	// persistPause is the pause between two tries to write a job's end.
	persistPause = 200 * time.Millisecond
)

// Worker renders jobs.
type Worker struct {
	Config
	db       *postgres.DB
	queue    *bus.Bus
	store    *blob.Store
	renderer *render.Renderer
	log      *slog.Logger

	room sync.RWMutex // see claim
}

// New wires a Worker.
func New(c Config, db *postgres.DB, queue *bus.Bus, store *blob.Store, renderer *render.Renderer, log *slog.Logger) *Worker {
	return &Worker{Config: c, db: db, queue: queue, store: store, renderer: renderer, log: log}
}

// Run works until ctx is done, then lets running pictures finish for Grace and
// gives the others back.
func (w *Worker) Run(ctx context.Context) {
	pictures, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	defer giveUp(nil)
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(w.Grace, func() { giveUp(errStopped) })
	})()
	alive, leave := context.WithCancel(pictures)
	defer leave()
	go w.stayAlive(alive)
	w.queue.Consume(ctx, w.Tasks, w.Slots, func(m bus.Message) { w.do(ctx, pictures, m) })
}

var (
	errStopped   = errors.New("the worker stops")
	errFenceLost = errors.New("another worker has the job")
)

// do brings one offered job to its end, or back to the queue. Nothing is begun
// when asked is done; what was begun goes on until ctx is.
func (w *Worker) do(asked, ctx context.Context, m bus.Message) {
	if asked.Err() != nil {
		m.Retry(0)
		return
	}
	j, verdict, leave, err := w.claim(asked, ctx, m)
	defer leave()
	switch {
	case err != nil:
		w.log.WarnContext(ctx, "a job could not be claimed", "job", m.ID, "error", err)
		m.Retry(retryDelay)
	case verdict == postgres.Gone:
		m.Ack() // final, or cancelled, or never committed
	case verdict == postgres.GivenUp:
		w.log.ErrorContext(ctx, "the job was given up: none of its workers came to an end", "job", m.ID, "account", w.accountOf(ctx, m.ID), "task", m.Task)
		w.final(ctx, m)
		if w.Buried != nil {
			w.Buried(m.Task)
		}
	case verdict == postgres.Claimed:
		w.attempt(ctx, j, m)
	default:
		m.Retry(w.Lease / 3) // its worker may still die, and there may be room for it
	}
}

// attempt works on a claimed job.
func (w *Worker) attempt(ctx context.Context, j job.Job, m bus.Message) {
	ctx = logctx.With(ctx, slog.String("job", string(j.ID)), slog.Int64("account", j.Account),
		slog.String("task", string(j.Task)), slog.Int64("fence", j.Fence))
	if w.Claimed != nil {
		ctx = w.Claimed(ctx, j, m)
	}
	w.log.DebugContext(ctx, "claimed")
	started := time.Now()

	result, err := w.render(ctx, j, m)

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settle)
	defer cancel()
	var failure *render.Failure
	var outcome Outcome
	var delay time.Duration // before a job that goes back is tried again
	switch {
	case err == nil:
		outcome = Completed
		err = w.complete(ctx, j, result)
	case errors.Is(err, errFenceLost):
	case errors.As(err, &failure):
		outcome = Refused
		w.log.InfoContext(ctx, "the picture cannot be worked on", "reason", failure.Message)
		err = w.fail(ctx, j, failure.Message)
	case errors.Is(err, errStopped):
		err = givenBack(w.db.GiveBack(ctx, j.ID, j.Fence))
	case j.Lapses+1 >= job.MaxClaims:
		outcome = GivenUp
		w.log.ErrorContext(ctx, "the job failed for the last time", "error", err)
		err = w.fail(ctx, j, "The image could not be processed, and its charge was given back. Please try again later.")
	default:
		w.log.WarnContext(ctx, "the job failed and is tried again", "error", err)
		delay = retryDelay
		err = givenBack(w.db.Lapse(ctx, j.ID, j.Fence))
	}

	switch {
	case errors.Is(err, errGivenBack):
		outcome = Returned
		m.Retry(delay)
	case errors.Is(err, errFenceLost):
		// Neither acknowledged nor given back: the message may be the very one
		// that the other worker holds. The sweeper deletes this result.
		outcome = Dropped
		w.log.InfoContext(ctx, "another worker has the job; this result is dropped")
	case err != nil:
		// The outcome is unknown or not written. The lease ends by itself, and
		// the next claim finds the truth.
		outcome = Unwritten
		w.log.WarnContext(ctx, "a job's end could not be written", "error", err)
		m.Retry(w.Lease)
	default:
		w.final(ctx, m)
		w.log.InfoContext(ctx, "done", "seconds", time.Since(started).Seconds())
	}
	if w.Ended != nil {
		w.Ended(ctx, j.Task, outcome, time.Since(started))
	}
}

// accountOf is for a line of the log, 0 when it cannot be had.
func (w *Worker) accountOf(ctx context.Context, id job.ID) int64 {
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	j, err := w.db.Job(ctx, 0, id)
	if err != nil {
		return 0
	}
	return j.Account
}

// final ends the message of a job that is final, and wakes who waits for it.
func (w *Worker) final(ctx context.Context, m bus.Message) {
	m.Ack()
	if err := w.queue.Finished(m.ID); err != nil {
		w.log.DebugContext(ctx, "waiters were not woken; they look by themselves", "job", m.ID, "error", err)
	}
}

// render makes and stores the result of a claimed job, while the heartbeat runs.
func (w *Worker) render(ctx context.Context, j job.Job, m bus.Message) (postgres.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	percent, stopped := new(atomic.Int64), make(chan struct{})
	go func() {
		defer close(stopped)
		w.heartbeat(ctx, cancel, j, m, percent)
	}()
	defer func() { cancel(nil); <-stopped }() // no heartbeat after the end is written

	result, err := w.picture(ctx, j, percent)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return postgres.Result{}, cause
	}
	return result, err
}

// picture reads the input, renders it into a temporary file and stores that.
func (w *Worker) picture(ctx context.Context, j job.Job, percent *atomic.Int64) (postgres.Result, error) {
	began := time.Now()
	input, err := w.input(ctx, j)
	if err != nil {
		return postgres.Result{}, err
	}
	w.lap(ctx, j.Task, Fetch, began)
	out, err := os.CreateTemp(w.Dir, "result-*")
	if err != nil {
		return postgres.Result{}, fmt.Errorf("make a file for the result: %w", err)
	}
	defer os.Remove(out.Name())
	defer out.Close()
	rendered, err := w.renderer.Render(ctx, j.Task, input, out, func(p int) { percent.Store(int64(p)) })
	if err != nil {
		return postgres.Result{}, err
	}
	size, err := out.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = out.Seek(0, io.SeekStart)
	}
	if err != nil {
		return postgres.Result{}, fmt.Errorf("read the result back: %w", err)
	}
	began = time.Now()
	if err := w.store.Put(ctx, j.ResultKey(), rendered.Type, out); err != nil {
		return postgres.Result{}, fmt.Errorf("store the result: %w", err)
	}
	w.lap(ctx, j.Task, Store, began)
	return postgres.Result{Type: rendered.Type, Size: size, Token: token()}, nil
}

// lap reports a stage that ends now.
func (w *Worker) lap(ctx context.Context, t job.Task, stage render.Stage, began time.Time) {
	if w.Stage != nil {
		w.Stage(ctx, t, render.Lap{Stage: stage, From: began, To: time.Now(), Busy: time.Since(began)})
	}
}

func (w *Worker) input(ctx context.Context, j job.Job) ([]byte, error) {
	object, err := w.store.Open(ctx, j.ID.InputKey())
	if err != nil {
		return nil, fmt.Errorf("open the input: %w", err)
	}
	defer object.Close()
	b, err := io.ReadAll(object)
	if err != nil {
		return nil, fmt.Errorf("read the input: %w", err)
	}
	if int64(len(b)) != j.Input.Size {
		return nil, fmt.Errorf("read the input: %d bytes, want %d", len(b), j.Input.Size)
	}
	return b, nil
}

// heartbeat writes progress and extends the lease until ctx is done. When the
// fence is lost, or no heartbeat could be written for a whole lease, it stops
// the rendering.
func (w *Worker) heartbeat(ctx context.Context, stop context.CancelCauseFunc, j job.Job, m bus.Message, percent *atomic.Int64) {
	beat := time.NewTicker(w.Beat)
	defer beat.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		}
		m.Alive()
		write, cancel := context.WithTimeout(ctx, w.Lease/2)
		held, err := w.db.Progress(write, j.ID, j.Fence, int(percent.Load()), "", w.Lease)
		cancel()
		switch {
		case err == nil && held:
			last = time.Now()
		case err == nil || time.Since(last) > w.Lease:
			stop(errFenceLost)
			return
		case ctx.Err() == nil:
			w.log.WarnContext(ctx, "a heartbeat was not written", "error", err)
		}
	}
}

func (w *Worker) complete(ctx context.Context, j job.Job, r postgres.Result) error {
	return persist(ctx, func(ctx context.Context) (bool, error) { return w.db.Complete(ctx, j.ID, j.Fence, r) })
}

func (w *Worker) fail(ctx context.Context, j job.Job, message string) error {
	return persist(ctx, func(ctx context.Context) (bool, error) { return w.db.Fail(ctx, j.ID, j.Fence, message) })
}

// persist repeats a write that ends a job until it has an answer or ctx ends:
// the picture is finished, and a database that restarts is back within seconds.
// Both writes give the same verdict when they are repeated after a lost answer.
func persist(ctx context.Context, write func(context.Context) (bool, error)) error {
	for {
		err := held(write(ctx))
		if err == nil || errors.Is(err, errFenceLost) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(persistPause):
		}
	}
}

var errGivenBack = errors.New("the job is back in the queue")

func givenBack(done bool, err error) error {
	if err := held(done, err); err != nil {
		return err
	}
	return errGivenBack
}

// stayAlive says that a worker for these tasks lives. Queued jobs are given up
// only when nobody says so.
func (w *Worker) stayAlive(ctx context.Context) {
	for {
		if err := w.db.Alive(ctx, w.Name, w.Tasks); err != nil && ctx.Err() == nil {
			w.log.Warn("the worker could not report that it lives", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(w.Lease / 3):
		}
	}
}

func held(done bool, err error) error {
	if err == nil && !done {
		return errFenceLost
	}
	return err
}

// token names a result on the public host: 192 random bits.
func token() string {
	b := make([]byte, 24)
	rand.Read(b) // never fails: crypto/rand ends the process instead
	return base64.RawURLEncoding.EncodeToString(b)
}
