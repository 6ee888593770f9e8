package work_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/job"
	"pictor/internal/onnx"
	"pictor/internal/point"
	"pictor/internal/render"
	"pictor/internal/testkit/parts"
	"pictor/internal/work"
)

// endless is an engine whose tiles end when they are cancelled, and never else.
type endless struct {
	began chan struct{}
	runs  *atomic.Int32
}

func (endless) Name() string     { return "endless" }
func (endless) Provider() string { return "CPU" }
func (endless) Close() error     { return nil }

func (e endless) Load(string, []byte, onnx.Options) (onnx.Model, error) { return e, nil }

func (e endless) Run(ctx context.Context, _, _ onnx.Tensor) error {
	e.runs.Add(1)
	select {
	case e.began <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return ctx.Err()
}

// The job is taken away while a tile is being enlarged: the next heartbeat sees
// another fence and stops that tile. No further one is begun, and nothing is
// stored.
func TestRun_stops_within_one_tile_when_its_fence_is_lost(t *testing.T) {
	t.Parallel()
	for _, task := range []job.Task{job.RemoveBG, job.Upscale2x, job.Upscale4x} {
		t.Run(string(task), func(t *testing.T) {
			t.Parallel()
			p := parts.New(t)
			engine := endless{began: make(chan struct{}, 1), runs: new(atomic.Int32)}
			const threads = 2
			renderer, err := render.New(render.Config{Engine: engine, Threads: threads, Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan work.Outcome, 1)
			c := config(t)
			c.Slots = 1
			c.Ended = func(_ context.Context, _ job.Task, o work.Outcome, _ time.Duration) { ended <- o }
			w, done := work.New(c, p.DB, p.Connect(t), p.Store, renderer, p.Log), make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				defer close(done)
				w.Run(ctx)
			}()
			t.Cleanup(func() {
				cancel()
				<-done
				_ = renderer.Close()
			})

			j := p.Admit(t, p.Account(t, point.Point), task)
			deadline := time.After(patience)
			select {
			case <-engine.began:
			case <-deadline:
				t.Fatal("never begun")
			}
			fence := p.Job(t, j.ID).Fence
			if held, err := p.DB.Fail(t.Context(), j.ID, fence, "Taken away by the test."); err != nil || !held {
				t.Fatal(held, err)
			}
			select {
			case got := <-ended:
				if diff := cmp.Diff(work.Dropped, got); diff != "" {
					t.Error(diff)
				}
			case <-deadline:
				t.Fatal("still at a tile of a job that is not its own")
			}
			if n := engine.runs.Load(); n > threads {
				t.Errorf("%d tiles were begun, want at most one for each of %d threads", n, threads)
			}
			if p.Has(t, j.ID.ResultKey(fence)) {
				t.Error("stored a result")
			}
			p.CheckInvariants(t)
		})
	}
}
