package wait_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/testkit/parts"
	"pictor/internal/testkit/pgtest"
	"pictor/internal/wait"
)

// watched is a hub whose statements are counted. Those that look for ended jobs
// are sent only while the gate is open.
type watched struct {
	*wait.Hub
	gate chan struct{} // closed: open

	mu          sync.Mutex
	rows, ended []int // jobs of each statement
}

func watch(t *testing.T, p *parts.Parts) *watched {
	t.Helper()
	w := &watched{gate: make(chan struct{})}
	over := make(chan struct{})
	count := func(of *[]int, n int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		*of = append(*of, n)
	}
	var err error
	w.Hub, err = wait.NewWatched(p.DB, p.Connect(t), p.Log,
		func(jobs int, send func()) {
			count(&w.rows, jobs)
			send()
		},
		func(jobs int, send func()) {
			select {
			case <-w.gate:
			case <-over:
			}
			count(&w.ended, jobs)
			send()
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(over)
		w.Close()
	})
	return w
}

// statements since the last call.
func (w *watched) statements() (rows, ended []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rows, ended = w.rows, w.ended
	w.rows, w.ended = nil, nil
	return rows, ended
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for over := time.After(far); !done(); {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("in vain waited until %s", what)
		}
	}
}

// crowd is many waiters, each for a job of its own that a worker has.
type crowd struct {
	jobs    []job.Job
	answers chan answer
}

const many = 300

func (w *watched) crowd(t *testing.T, p *parts.Parts, d time.Duration) *crowd {
	t.Helper()
	c := &crowd{jobs: make([]job.Job, many), answers: make(chan answer, many)}
	var all sync.WaitGroup
	for i := 0; i < many; i += job.MaxRunning {
		account := p.Account(t, point.Point)
		all.Go(func() {
			for k := range job.MaxRunning {
				c.jobs[i+k] = pgtest.Claimed(t, p.DB, account)
			}
		})
	}
	all.Wait()
	for _, j := range c.jobs {
		go func() {
			got, err := w.For(t.Context(), j.Account, j.ID, d)
			a := answer{err: err}
			if got != nil {
				a.state, a.progress = got.State, got.Progress
			}
			c.answers <- a
		}()
	}
	return c
}

// parked returns when everybody has looked once and waits.
func (w *watched) parked(t *testing.T) {
	t.Helper()
	until(t, "all wait", func() bool { return w.Waiting() == many && w.Asked() == 0 })
}

// each answer is as wanted, and few statements were needed for all of them.
func (c *crowd) answered(t *testing.T, w *watched, want answer) {
	t.Helper()
	for range many {
		if diff := cmp.Diff(want, <-c.answers, cmp.AllowUnexported(answer{})); diff != "" {
			t.Error(diff)
		}
	}
	if n := w.Waiting(); n != 0 {
		t.Errorf("%d still wait", n)
	}
	if rows, ended := w.statements(); len(rows)+len(ended) > many/5 {
		t.Errorf("%d waiters took the statements %v and %v", many, rows, ended)
	}
}

// Who asks while the database is busy is served by the next statement, together
// with all others.
func TestFor_asks_for_everybody_in_one_statement(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	const clients = 2*wait.Batch + 100
	var mu sync.Mutex
	var sent []int
	begin := make(chan struct{})
	h, err := wait.NewWatched(p.DB, p.Connect(t), p.Log,
		func(jobs int, send func()) {
			mu.Lock()
			sent = append(sent, jobs)
			mu.Unlock()
			<-begin
			send()
		},
		func(_ int, send func()) { send() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	account := p.Account(t, point.Point)
	mine := p.Admit(t, account, job.RemoveBG)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			if j, err := h.For(t.Context(), account, mine.ID, 0); err != nil || j.ID != mine.ID {
				t.Errorf("got %v, %v", j, err)
			}
		})
	}
	until(t, "all have asked", func() bool {
		mu.Lock()
		defer mu.Unlock()
		asked := h.Asked()
		for _, n := range sent {
			asked += n
		}
		return asked == clients
	})
	close(begin)
	all.Wait()
	// The first ones took what was there when they began.
	if most := wait.Readers + clients/wait.Batch + 1; len(sent) > most || slices.Max(sent) > wait.Batch {
		t.Errorf("statements for %v jobs, want at most %d, for at most %d each", sent, most, wait.Batch)
	}
}

// Broadcasts are at most once: here all of them are lost.
func TestFor_heals_hundreds_of_lost_wake_ups(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	w := watch(t, p)
	c := w.crowd(t, p, far)
	w.parked(t)
	var all sync.WaitGroup
	for of := range slices.Chunk(c.jobs, many/8) {
		all.Go(func() {
			for _, j := range of {
				finish(t, p, j)
			}
		})
	}
	all.Wait()
	w.statements()
	close(w.gate)
	w.LookForEnded()
	c.answered(t, w, answer{state: job.Completed, progress: 100})
}

func TestClose_answers_hundreds_with_their_job_as_it_is(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	w := watch(t, p)
	c := w.crowd(t, p, far)
	w.parked(t)
	for _, j := range c.jobs {
		if held, err := p.DB.Progress(t.Context(), j.ID, j.Fence, 40, "", time.Minute); err != nil || !held {
			t.Fatal(held, err)
		}
	}
	w.statements()
	w.Close()
	c.answered(t, w, answer{state: job.Processing, progress: 40})
}

func TestFor_ends_for_hundreds_when_their_time_is_up(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	w := watch(t, p)
	c := w.crowd(t, p, 100*time.Millisecond)
	for range many {
		if got := <-c.answers; got.err != nil || got.state != job.Processing {
			t.Errorf("got %v, want processing", got)
		}
	}
}

// A job may finish between the look of a waiter and its sleep. Registered
// before, the waiter has the wake-up already: nobody looks for ended jobs here.
func TestFor_registers_before_it_looks(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	j := pgtest.Claimed(t, p.DB, p.Account(t, point.Point))
	queue, heard := p.Connect(t), make(chan struct{})
	looked := false
	h, err := wait.NewWatched(p.DB, queue, p.Log,
		func(_ int, send func()) {
			send()
			if !looked { // there is one waiter, so one look at a time
				looked = true
				finish(t, p, j)
				if err := p.Queue.Finished(j.ID); err != nil {
					t.Error(err)
				}
				<-heard
			}
		},
		func(int, func()) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	// What this listener has heard, the hub's has been sent on the same connection.
	stop, err := queue.OnFinished(func(job.ID) { close(heard) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	ctx, done := context.WithTimeout(t.Context(), far)
	defer done()
	got, err := h.For(ctx, j.Account, j.ID, 2*far)
	if err != nil || got.State != job.Completed {
		t.Errorf("got %v, %v; want completed", got, err)
	}
}
