// Package wait holds a request until its job is final or its time is up.
//
// One subscription serves every waiter of the process. A wake-up is only a
// hint to look: it may be lost or doubled, so a waiter registers first, then
// reads the row, then sleeps, and reads again now and then. Registering before
// reading closes the gap in which a job could finish unseen.
package wait

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"pictor/internal/bus"
	"pictor/internal/job"
	"pictor/internal/postgres"
)

const (
	// reread bounds the delay that a lost wake-up can cause.
	reread = 5 * time.Second
	// readTimeout bounds one look at the row. It is apart from the client's
	// patience, so that the last look can still be made when that has ended.
	readTimeout = 5 * time.Second
	// spread is the time over which everybody looks after a reconnect, so that
	// 10,000 waiters do not ask the database at once.
	spread = 2 * time.Second
	shards = 64
)

// Hub is the waiting room of one process.
type Hub struct {
	db     *postgres.DB
	log    *slog.Logger
	closed chan struct{}
	close  func()
	shards [shards]shard
}

// shard is a part of the waiters, so that 10,000 of them do not queue for one
// lock.
type shard struct {
	mu      sync.Mutex
	waiting map[job.ID]map[chan struct{}]struct{}
}

// New opens the waiting room and listens for finished jobs until Close.
func New(db *postgres.DB, queue *bus.Bus, log *slog.Logger) (*Hub, error) {
	h := &Hub{db: db, log: log, closed: make(chan struct{})}
	for i := range h.shards {
		h.shards[i].waiting = make(map[job.ID]map[chan struct{}]struct{})
	}
	stop, err := queue.OnFinished(h.wake)
	if err != nil {
		return nil, err
	}
	stopReconnect := queue.OnReconnect(h.wakeAll)
	h.close = sync.OnceFunc(func() {
		stop()
		stopReconnect()
		close(h.closed)
	})
	return h, nil
}

// Close answers everybody who waits with the job as it is now. For then returns
// at once.
func (h *Hub) Close() { h.close() }

// Waiting is the number of requests that are held.
func (h *Hub) Waiting() int {
	n := 0
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.Lock()
		for _, waiters := range s.waiting {
			n += len(waiters)
		}
		s.mu.Unlock()
	}
	return n
}

// For returns the account's job when it is final, and as it is after at most d.
// A job of another account is fault.NotFound, like one that does not exist.
func (h *Hub) For(ctx context.Context, account int64, id job.ID, d time.Duration) (job.Job, error) {
	woken, leave := h.enter(id)
	defer leave()
	j, err := h.read(ctx, account, id)
	if err != nil || j.State.Final() || d <= 0 {
		return j, err
	}
	end := time.NewTimer(d)
	defer end.Stop()
	again := time.NewTicker(reread)
	defer again.Stop()
	for {
		over := false
		select {
		case <-woken:
		case <-again.C:
		case <-end.C:
			over = true
		case <-h.closed:
			over = true
		case <-ctx.Done():
			return j, ctx.Err()
		}
		now, err := h.read(ctx, account, id)
		switch {
		case err != nil && over:
			return job.Job{}, err
		case err != nil:
			h.log.WarnContext(ctx, "a waiter could not look at its job; it will again", "job", id, "error", err)
			continue
		}
		if now.State.Final() || over {
			return now, nil
		}
		j = now
	}
}

func (h *Hub) read(ctx context.Context, account int64, id job.ID) (job.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return h.db.Job(ctx, account, id)
}

func (h *Hub) enter(id job.ID) (woken <-chan struct{}, leave func()) {
	s, c := h.shard(id), make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[id] == nil {
		s.waiting[id] = make(map[chan struct{}]struct{}, 1)
	}
	s.waiting[id][c] = struct{}{}
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiting[id], c)
		if len(s.waiting[id]) == 0 {
			delete(s.waiting, id)
		}
	}
}

// wake runs on the connection's reader, so it never blocks: a waiter that was
// woken already needs no second wake-up.
func (h *Hub) wake(id job.ID) {
	s := h.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.waiting[id] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (h *Hub) wakeAll() {
	for i := range h.shards {
		time.AfterFunc(rand.N(spread), func() {
			s := &h.shards[i]
			s.mu.Lock()
			ids := make([]job.ID, 0, len(s.waiting))
			for id := range s.waiting {
				ids = append(ids, id)
			}
			s.mu.Unlock()
			for _, id := range ids {
				h.wake(id)
			}
		})
	}
}

// shard spreads ids over the shards by FNV-1a.
func (h *Hub) shard(id job.ID) *shard {
	hash := uint32(2166136261)
	for i := range len(id) {
		hash = (hash ^ uint32(id[i])) * 16777619
	}
	return &h.shards[hash%shards]
}
