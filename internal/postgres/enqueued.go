package postgres

import (
	"context"
	"fmt"

	"pictor/internal/job"
)

// Enqueued records that the job's message is in the queue. False: the job was
// cancelled meanwhile, and its charge taken back.
func (db *DB) Enqueued(ctx context.Context, id job.ID) (bool, error) {
	n, err := db.exec(ctx, `
		update jobs set enqueued_at = coalesce(enqueued_at, clock_timestamp())
		where id = $1 and not (state = 'failed' and fence = 0)`, string(id))
	if err != nil {
		return false, fmt.Errorf("confirm the publish of job %s: %w", id, err)
	}
	return n == 1, nil
}
