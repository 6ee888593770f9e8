package postgres

import (
	"context"
	"fmt"

	"pictor/internal/job"
)

// GiveBack gives an unfinished job back, so that another worker can claim it at
// once and the claim does not count as one that killed its worker. False: the
// fence is lost.
func (db *DB) GiveBack(ctx context.Context, id job.ID, fence int64) (bool, error) {
	n, err := db.exec(ctx, `
		update jobs set lease_until = null, updated_at = clock_timestamp()
		where id = $1 and state = 'processing' and fence = $2`, string(id), fence)
	if err != nil {
		return false, fmt.Errorf("give back job %s: %w", id, err)
	}
	return n == 1, nil
}
