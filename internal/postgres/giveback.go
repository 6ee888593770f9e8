package postgres

import (
	"context"
	"fmt"

	"pictor/internal/job"
)

// GiveBack gives an unfinished job back, so that another worker can claim it at
// once and the claim does not count as one that came to nothing. False: the
// fence is lost.
func (db *DB) GiveBack(ctx context.Context, id job.ID, fence int64) (bool, error) {
	return db.giveBack(ctx, id, fence, 0)
}

// Lapse gives a job back whose attempt came to nothing: it counts as if the
// lease had run out, and the job can be claimed at once. False: the fence is
// lost.
func (db *DB) Lapse(ctx context.Context, id job.ID, fence int64) (bool, error) {
	return db.giveBack(ctx, id, fence, 1)
}

// giveBack counts the lapses of a lease that is still there, so that a repeat
// counts nothing.
func (db *DB) giveBack(ctx context.Context, id job.ID, fence int64, lapses int) (bool, error) {
	n, err := db.exec(ctx, `
		update jobs set lapses = lapses + case when lease_until is null then 0 else $3 end,
			lease_until = null, updated_at = clock_timestamp()
		where id = $1 and state = 'processing' and fence = $2`, string(id), fence, lapses)
	if err != nil {
		return false, fmt.Errorf("give back job %s: %w", id, err)
	}
	return n == 1, nil
}
