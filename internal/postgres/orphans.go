package postgres

import (
	"context"
	"fmt"
	"time"

	"pictor/internal/job"
)

// Orphans lists the jobs whose publish was not confirmed within age, oldest
// first: no client was told of them, and Cancel takes them back.
func (db *DB) Orphans(ctx context.Context, age time.Duration, limit int) ([]job.ID, error) {
	var ids []job.ID
	err := db.list(ctx, &ids, `
		select id from jobs
		where finished_at is null and state = 'queued' and fence = 0 and enqueued_at is null
			and created_at < now() - $1::interval
		order by created_at limit $2`, interval(age), limit)
	if err != nil {
		return nil, fmt.Errorf("look for orphaned jobs: %w", err)
	}
	return ids, nil
}
