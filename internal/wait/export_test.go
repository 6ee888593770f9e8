package wait

import (
	"context"
	"log/slog"

	"pictor/internal/bus"
	"pictor/internal/job"
	"pictor/internal/postgres"
)

// NewWatched is New for a test that stands around every statement: it is told
// for how many jobs the statement is, and has it sent.
func NewWatched(db *postgres.DB, queue *bus.Bus, log *slog.Logger, rows, ended func(jobs int, send func())) (*Hub, error) {
	return open(
		func(ctx context.Context, ids []job.ID) (jobs map[job.ID]*job.Job, err error) {
			rows(len(ids), func() { jobs, err = db.JobsByID(ctx, ids) })
			return jobs, err
		},
		func(ctx context.Context, ids []job.ID) (over []job.ID, err error) {
			ended(len(ids), func() { over, err = db.Ended(ctx, ids) })
			return over, err
		},
		queue, log)
}

// LookForEnded asks at once what the hub asks now and then.
func (h *Hub) LookForEnded() { h.missed <- struct{}{} }

// Asked is how many questions no statement has taken.
func (h *Hub) Asked() int {
	h.rows.mu.Lock()
	defer h.rows.mu.Unlock()
	return len(h.rows.asked)
}

// The most jobs of one statement, and the most statements side by side.
const (
	Batch   = batch
	Readers = readers
)
