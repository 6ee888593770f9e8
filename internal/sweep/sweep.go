// Package sweep finishes what a dead process left behind. Any number of
// processes may run a sweeper; one of them works at a time.
//
// What it does, in this order:
//
//	queue     makes the stream and the consumers exist
//	orphans   cancels and refunds jobs that were charged but never published:
//	          no client was ever told that they were accepted
//	lost      publishes jobs again whose message may be gone, under the message
//	          id they had, so that JetStream absorbs what is not gone. JetStream
//	          remembers an id for two minutes and a queue may take hours, so a
//	          job is left alone for as long as its message may only be waiting
//	stuck     fails and refunds jobs without a sign of life
//	expired   deletes results that are older than their promised time
//	inputs    deletes the inputs of final jobs
//	garbage   deletes objects that no job owns, and what a dead process wrote half
//
// Every step is a guarded transaction per job, so that a sweeper that dies half
// way, or works beside another one, does no harm.
package sweep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"pictor/internal/blob"
	"pictor/internal/bus"
	"pictor/internal/job"
	"pictor/internal/postgres"
)

// Config sets the ages at which the sweeper acts.
type Config struct {
	Every      time.Duration // pause between two rounds
	StuckAfter time.Duration // without a sign of life: failed and refunded
	ResultTTL  time.Duration // how long a result is kept after its job completed

	OrphanAfter  time.Duration // charged but not published: cancelled and refunded
	LostAfter    time.Duration // its turn in the queue has come and it is not claimed: published again
	GarbageAfter time.Duration // an object without a job: deleted
	GarbageEvery time.Duration // pause between two looks through the whole store

	Swept func(Counts) // when set, told what each round did
}

// Defaults are the ages of everything that an operator does not set.
//
// OrphanAfter must exceed the time that admission takes between the charge and
// the confirmed publication; LostAfter must stay below the window in which
// JetStream recognises a message id.
func Defaults() Config {
	return Config{
		Every:        2 * time.Second,
		StuckAfter:   5 * time.Minute,
		ResultTTL:    24 * time.Hour,
		OrphanAfter:  15 * time.Second,
		LostAfter:    30 * time.Second,
		GarbageAfter: time.Hour,
		GarbageEvery: 10 * time.Minute,
	}
}

// batch bounds each step of one round, so that no round is endless.
const batch = 500

const (
	orphanMessage = "The job could not be queued, and its charge was given back."
	stuckMessage  = "The job did not finish in time, and its charge was given back. Please try again."
)

// Counts says what one round did.
type Counts struct {
	Orphans, Republished, Stuck, Expired, Inputs, Garbage int
}

// Sweeper runs the rounds.
type Sweeper struct {
	Config
	db          *postgres.DB
	queue       *bus.Bus
	store       *blob.Store
	log         *slog.Logger
	lastGarbage time.Time
}

// New wires a Sweeper.
func New(c Config, db *postgres.DB, queue *bus.Bus, store *blob.Store, log *slog.Logger) *Sweeper {
	return &Sweeper{Config: c, db: db, queue: queue, store: store, log: log}
}

// Run sweeps until ctx is done.
func (s *Sweeper) Run(ctx context.Context) {
	for {
		counts, err := s.Once(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("the sweeper could not do everything; it tries again", "error", err)
		}
		if counts != (Counts{}) {
			if s.Swept != nil {
				s.Swept(counts)
			}
			s.log.Info("swept", "orphans", counts.Orphans, "republished", counts.Republished, "stuck", counts.Stuck,
				"expired", counts.Expired, "inputs", counts.Inputs, "garbage", counts.Garbage)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.Every):
		}
	}
}

// Once runs one round, unless another process is at it. A step that fails does
// not keep the others from their work.
func (s *Sweeper) Once(ctx context.Context) (Counts, error) {
	var c Counts
	errs := []error{s.queue.Ensure(ctx)}
	turn, release, err := s.db.TrySweep(ctx)
	if err != nil || !turn {
		return c, errors.Join(append(errs, err)...)
	}
	defer release()
	step := func(name string, count *int, do func(context.Context) (int, error)) {
		n, err := do(ctx)
		*count = n
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	step("orphans", &c.Orphans, s.orphans)
	step("lost jobs", &c.Republished, s.lost)
	step("stuck jobs", &c.Stuck, s.stuck)
	step("expired results", &c.Expired, s.expired)
	step("inputs", &c.Inputs, s.inputs)
	if time.Since(s.lastGarbage) >= s.GarbageEvery {
		step("garbage", &c.Garbage, s.garbage)
		s.lastGarbage = time.Now()
	}
	return c, errors.Join(errs...)
}

func (s *Sweeper) orphans(ctx context.Context) (int, error) {
	ids, err := s.db.Orphans(ctx, s.OrphanAfter, batch)
	return s.end(ctx, ids, err, func(id job.ID) (bool, error) { return s.db.Cancel(ctx, id, orphanMessage) })
}

func (s *Sweeper) stuck(ctx context.Context) (int, error) {
	ids, err := s.db.Stuck(ctx, s.StuckAfter, batch)
	return s.end(ctx, ids, err, func(id job.ID) (bool, error) { return s.db.Sweep(ctx, id, s.StuckAfter, stuckMessage) })
}

// end brings jobs to their end one by one and wakes whoever waits for them.
func (s *Sweeper) end(ctx context.Context, ids []job.ID, err error, end func(job.ID) (bool, error)) (int, error) {
	n := 0
	errs := []error{err}
	for _, id := range ids {
		done, err := end(id)
		if err != nil {
			errs = append(errs, fmt.Errorf("job %s: %w", id, err))
			continue
		}
		if done {
			n++
			_ = s.queue.Finished(id) // a waiter that misses it looks by itself
			s.tell(ctx, id)
		}
	}
	return n, errors.Join(errs...)
}

// tell logs the end of a job, for whoever asks why it came to nothing.
func (s *Sweeper) tell(ctx context.Context, id job.ID) {
	j, err := s.db.Job(ctx, 0, id)
	if err != nil {
		s.log.WarnContext(ctx, "a job was ended and refunded", "job", id, "error", err)
		return
	}
	s.log.WarnContext(ctx, "a job was ended and refunded", "job", id, "account", j.Account, "task", j.Task, "fence", j.Fence, "reason", j.Message)
}

// lost publishes again until the first failure: when the queue is away, the
// next round will do.
//
// Messages are given to workers in the order in which they were published, so
// only a job that was published before the first message that still waits can
// have lost its own. The two ages that are compared are each of one clock, the
// database's and NATS', and the database's is read first: what happens between
// the two looks makes jobs younger, never older.
func (s *Sweeper) lost(ctx context.Context) (n int, err error) {
	now, err := s.db.Now(ctx)
	if err != nil {
		return 0, err
	}
	for _, t := range job.Tasks() {
		waited, err := s.queue.Waited(ctx, t)
		if err != nil {
			return n, err
		}
		jobs, err := s.db.Lost(ctx, t, now.Add(-waited-s.LostAfter), now.Add(-s.LostAfter/3), batch)
		if err != nil {
			return n, err
		}
		for _, j := range jobs {
			if err := s.queue.Publish(ctx, j.Task, j.ID, j.Fence); err != nil {
				return n, err
			}
			if err := s.db.Republished(ctx, j.ID); err != nil {
				return n, err
			}
			n++
		}
	}
	return n, nil
}

// expired marks a result as gone before deleting it: from then on it answers
// 404, whether or not the object could be deleted.
func (s *Sweeper) expired(ctx context.Context) (int, error) {
	jobs, err := s.db.Expire(ctx, s.ResultTTL, batch)
	for i, j := range jobs {
		if err := s.store.Delete(ctx, j.ResultKey()); err != nil {
			return i, err // the garbage step will find it
		}
	}
	return len(jobs), err
}

func (s *Sweeper) inputs(ctx context.Context) (int, error) {
	ids, err := s.db.Inputs(ctx, batch)
	for i, id := range ids {
		if err := s.store.Delete(ctx, id.InputKey()); err != nil {
			return i, err
		}
		if err := s.db.InputDeleted(ctx, id); err != nil {
			return i, err
		}
	}
	return len(ids), err
}

// garbage goes through the whole store. An object younger than GarbageAfter may
// belong to a job that is only just being admitted or completed.
func (s *Sweeper) garbage(ctx context.Context) (int, error) {
	old := time.Now().Add(-s.GarbageAfter)
	n, err := s.store.RemoveHalfWritten(ctx, old)
	if err != nil {
		return n, err
	}
	for _, prefix := range []string{"in/", "out/", "probe/"} {
		err := s.store.List(ctx, prefix, func(key string, modified time.Time, _ int64) error {
			if modified.After(old) {
				return nil
			}
			owned, err := s.db.Owns(ctx, owner(key), key)
			if err != nil || owned {
				return err
			}
			n++
			return s.store.Delete(ctx, key)
		})
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// owner is the job id in a key: in/<id> or out/<id>/<fence>.
func owner(key string) job.ID {
	_, rest, _ := strings.Cut(key, "/")
	id, _, _ := strings.Cut(rest, "/")
	return job.ID(id)
}
