package postgres

import (
	"context"
	"fmt"
	"time"

	"pictor/internal/job"
)

// Now is the database's clock, the only one that times of jobs may be held
// against.
func (db *DB) Now(ctx context.Context) (now time.Time, err error) {
	if err := db.get(ctx, &now, `select clock_timestamp()`); err != nil {
		return now, fmt.Errorf("ask for the time: %w", err)
	}
	return now, nil
}

// Lost lists the jobs of a task whose message may be lost, oldest first: last
// published before a time, and either queued, or claimed under a lease that ran
// out before another. A job given back counts as run out then.
func (db *DB) Lost(ctx context.Context, t job.Task, published, lapsed time.Time, limit int) ([]job.Job, error) {
	var rows []jobRow
	err := db.list(ctx, &rows, `
		select `+jobColumns+` from jobs
		where finished_at is null and task = $1 and enqueued_at < $2
			and (state = 'queued' or state = 'processing' and coalesce(lease_until, updated_at) < $3)
		order by created_at limit $4`, string(t), published, lapsed, limit)
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
