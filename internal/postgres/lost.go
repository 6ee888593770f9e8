package postgres

import (
	"context"
	"fmt"
	"time"

	"pictor/internal/job"
)

// Lost lists the jobs whose message may be lost, oldest first: last published
// longer than age ago, and either queued, or claimed under a lease that ran out
// longer than a third of age ago. A job given back counts as run out then.
func (db *DB) Lost(ctx context.Context, age time.Duration, limit int) ([]job.Job, error) {
	var rows []jobRow
	err := db.list(ctx, &rows, `
		select `+jobColumns+` from jobs
		where finished_at is null and enqueued_at < now() - $1::interval
			and (state = 'queued' or state = 'processing' and coalesce(lease_until, updated_at) < now() - $2::interval)
		order by created_at limit $3`, interval(age), interval(age/3), limit)
	if err != nil {
		return nil, fmt.Errorf("look for lost messages: %w", err)
	}
	return jobs(rows), nil
}

// Republished records that the job's message was published again.
func (db *DB) Republished(ctx context.Context, id job.ID) error {
	_, err := db.exec(ctx, `
		update jobs set enqueued_at = clock_timestamp() where id = $1 and finished_at is null`, string(id))
	if err != nil {
		return fmt.Errorf("record that job %s was published again: %w", id, err)
	}
	return nil
}
