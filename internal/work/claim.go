package work

import (
	"context"
	"time"

	"pictor/internal/bus"
	"pictor/internal/job"
	"pictor/internal/postgres"
)

// claim claims a job beside others, or, for its last attempt, when the others
// here have ended: the room is held for reading by the former and for writing
// by the latter. A job that waits for the room is not claimed, so that nothing
// counts against it when this process dies. leave gives the room back.
func (w *Worker) claim(asked, ctx context.Context, m bus.Message) (j job.Job, verdict postgres.Verdict, leave func(), err error) {
	if !w.room.TryRLock() {
		return j, postgres.Last, func() {}, nil // a last attempt is here, or about to be: others have room
	}
	j, verdict, err = w.claimBy(ctx, m.ID, w.db.ClaimBeside)
	if err != nil || verdict != postgres.Last {
		return j, verdict, w.room.RUnlock, err
	}
	w.room.RUnlock()

	waiting, over := context.WithCancel(ctx)
	go w.keep(waiting, m)
	w.room.Lock() // nobody comes in any more, so it is free when the pictures that run have ended
	over()
	if asked.Err() != nil {
		return j, postgres.Last, w.room.Unlock, nil
	}
	j, verdict, err = w.claimBy(ctx, m.ID, w.db.Claim)
	return j, verdict, w.room.Unlock, err
}

type claim func(context.Context, job.ID, time.Duration) (job.Job, postgres.Verdict, error)

// claimBy goes on when the worker is told to stop: a claim that is cut off may be
// written all the same, and its job would lie idle until the lease ends.
func (w *Worker) claimBy(ctx context.Context, id job.ID, claim claim) (job.Job, postgres.Verdict, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settle)
	defer cancel()
	return claim(ctx, id, w.Lease)
}

// keep keeps a message that waits here from being delivered again.
func (w *Worker) keep(ctx context.Context, m bus.Message) {
	beat := time.NewTicker(w.Beat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			m.Alive()
		}
	}
}
