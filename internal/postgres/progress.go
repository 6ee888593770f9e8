package postgres

import (
	"context"
	"fmt"
	"time"

	"pictor/internal/job"
)

// Progress is the heartbeat of the worker that holds the fence: it extends the
// lease and raises the progress, which never falls. An empty message keeps the
// last one. False: the fence is lost or the job given back; stop the work and
// drop its result.
func (db *DB) Progress(ctx context.Context, id job.ID, fence int64, percent int, message string, lease time.Duration) (bool, error) {
	n, err := db.exec(ctx, `
		update jobs
		set progress = greatest(progress, least($3, 100)), message = coalesce(nullif($4, ''), message),
			lease_until = clock_timestamp() + $5::interval, heartbeat_at = clock_timestamp(), updated_at = clock_timestamp()
		where id = $1 and state = 'processing' and fence = $2 and lease_until is not null`,
		string(id), fence, percent, message, interval(lease))
	if err != nil {
		return false, fmt.Errorf("heartbeat of job %s: %w", id, err)
	}
	return n == 1, nil
}
