package postgres

import (
	"context"
	"fmt"

	"pictor/internal/job"
)

// Result is the stored result that Complete publishes.
type Result struct {
	Type  string
	Size  int64
	Token string // unguessable; unique
}

// Complete ends the job of the worker that holds the fence and publishes the
// result stored under that fence. False: the fence is lost; the result is
// garbage. A repeat after a lost answer is true.
func (db *DB) Complete(ctx context.Context, id job.ID, fence int64, r Result) (bool, error) {
	n, err := db.exec(ctx, `
		with completed as (
			update jobs
			set state = 'completed', progress = 100, message = $3, lease_until = null,
				result_fence = fence, result_type = $4, result_size = $5, result_token = $6,
				finished_at = clock_timestamp(), updated_at = clock_timestamp()
			where id = $1 and state = 'processing' and fence = $2
			returning account_id
		)
		update accounts set running = accounts.running - 1
		from completed where accounts.id = completed.account_id`,
		string(id), fence, job.Completed.Message(), r.Type, r.Size, r.Token)
	if err == nil && n == 0 {
		n, err = db.count(ctx, `select count(*) from jobs where id = $1 and state = 'completed' and result_fence = $2`, string(id), fence)
	}
	if err != nil {
		return false, fmt.Errorf("complete job %s: %w", id, err)
	}
	return n == 1, nil
}
