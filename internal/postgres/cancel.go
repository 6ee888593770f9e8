package postgres

import (
	"context"
	"fmt"

	"pictor/internal/job"
)

// Cancel takes back a job that no client was told of: fails and refunds it and
// releases its Idempotency-Key. False: it was published after all, for a worker
// has claimed it or its publish was confirmed, and is to be answered as
// accepted. True also for a job that was cancelled before.
func (db *DB) Cancel(ctx context.Context, id job.ID, message string) (bool, error) {
	n, err := db.exec(ctx, failWhere(`state = 'queued' and fence = 0 and enqueued_at is null`, releaseKey), string(id), message)
	if err == nil && n == 0 {
		n, err = db.count(ctx, `select count(*) from jobs where id = $1 and state = 'failed' and fence = 0`, string(id))
	}
	if err != nil {
		return false, fmt.Errorf("cancel job %s: %w", id, err)
	}
	return n == 1, nil
}
