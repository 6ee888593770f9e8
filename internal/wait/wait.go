// Package wait holds a request until its job is final or its time is up.
//
// One subscription serves every waiter of the process. A wake-up is only a
// hint to look: it may be lost or doubled, so a waiter registers first, then
// reads the row, then sleeps. Registering before reading closes the gap in which
// a job could finish unseen. Now and then the hub asks which of all awaited jobs
// have ended, and wakes whoever should have been woken.
//
// No waiter has a statement of its own: see reader.
package wait

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"pictor/internal/bus"
	"pictor/internal/fault"
	"pictor/internal/job"
	"pictor/internal/postgres"
)

const (
	// reread bounds the delay that a lost wake-up can cause.
	reread = 5 * time.Second
	// readTimeout bounds one statement.
	readTimeout = 5 * time.Second
	// batch is how many jobs one statement asks for at most.
	batch = 1000
)

type (
	readRows  func(context.Context, []job.ID) (map[job.ID]*job.Job, error)
	readEnded func(context.Context, []job.ID) ([]job.ID, error)
)

// Hub is the waiting room of one process.
type Hub struct {
	rows    *reader
	ended   readEnded
	log     *slog.Logger
	missed  chan struct{} // wake-ups may have been missed
	closing context.Context
	close   func()

	mu      sync.Mutex
	waiting map[job.ID][]chan struct{}
}

// New opens the waiting room and listens for finished jobs until Close.
func New(db *postgres.DB, queue *bus.Bus, log *slog.Logger) (*Hub, error) {
	return open(db.JobsByID, db.Ended, queue, log)
}

func open(rows readRows, ended readEnded, queue *bus.Bus, log *slog.Logger) (*Hub, error) {
	h := &Hub{
		rows: &reader{read: rows, log: log}, ended: ended, log: log,
		missed: make(chan struct{}, 1), waiting: make(map[job.ID][]chan struct{}),
	}
	stop, err := queue.OnFinished(h.wake)
	if err != nil {
		return nil, err
	}
	stopReconnect := queue.OnReconnect(func() {
		select {
		case h.missed <- struct{}{}:
		default:
		}
	})
	closing, end := context.WithCancel(context.Background())
	h.closing = closing
	h.close = sync.OnceFunc(func() {
		stop()
		stopReconnect()
		end()
	})
	go h.lookForEnded()
	return h, nil
}

// Close answers everybody who waits with the job as it is now. For then returns
// at once.
func (h *Hub) Close() { h.close() }

// Waiting is the number of requests that are held.
func (h *Hub) Waiting() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, waiters := range h.waiting {
		n += len(waiters)
	}
	return n
}

// For returns the account's job when it is final, and as it is after at most d.
// A job of another account is fault.NotFound, like one that does not exist.
//
// Its stack is there for as long as it waits, so it holds little.
func (h *Hub) For(ctx context.Context, account int64, id job.ID, d time.Duration) (*job.Job, error) {
	woken, leave := h.enter(id)
	defer leave()
	j, err := h.read(ctx, account, id)
	if err != nil || j.State.Final() || d <= 0 {
		return j, err
	}
	end := time.NewTimer(d)
	defer end.Stop()
	for {
		over := false
		select {
		case <-woken:
		case <-end.C:
			over = true
		case <-h.closing.Done():
			over = true
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		j, err := h.read(ctx, account, id)
		if over || err == nil && j.State.Final() {
			return j, err
		}
		// Neither a wake-up for nothing nor a failed look ends the wait.
	}
}

func (h *Hub) read(ctx context.Context, account int64, id job.ID) (*job.Job, error) {
	j, err := h.rows.job(ctx, id)
	if err == nil && (j == nil || j.Account != account) {
		err = fault.New(fault.NotFound, "No such job.")
	}
	if err != nil {
		return nil, err
	}
	return j, nil
}

func (h *Hub) enter(id job.ID) (woken <-chan struct{}, leave func()) {
	c := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting[id] = append(h.waiting[id], c)
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		left := slices.DeleteFunc(h.waiting[id], func(other chan struct{}) bool { return other == c })
		if len(left) == 0 {
			delete(h.waiting, id)
			return
		}
		h.waiting[id] = left
	}
}

// wake runs on the connection's reader, so it never blocks: a waiter that was
// woken already needs no second wake-up.
func (h *Hub) wake(id job.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.waiting[id] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// lookForEnded wakes waiters whose wake-up was lost.
func (h *Hub) lookForEnded() {
	tick := time.NewTicker(reread)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-h.missed:
		case <-h.closing.Done():
			return
		}
		for ids := range slices.Chunk(h.awaited(), batch) {
			ctx, done := context.WithTimeout(h.closing, readTimeout)
			ended, err := h.ended(ctx, ids)
			done()
			if err != nil && h.closing.Err() == nil {
				h.log.Warn("could not look which jobs have ended; it is tried again", "jobs", len(ids), "error", err)
			}
			for _, id := range ended {
				h.wake(id)
			}
		}
	}
}

func (h *Hub) awaited() []job.ID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.waiting))
}
