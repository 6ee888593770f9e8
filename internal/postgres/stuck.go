package postgres

import (
	"context"
	"fmt"
	"time"

	"pictor/internal/job"
)

// silent is the guard of a job that showed no sign of life for an interval,
// given as the parameter to use: a worker holds it and its last heartbeat is
// older, or none holds it and no worker of its task has been seen for as long.
func silent(after string) string {
	before := `clock_timestamp() - ` + after + `::interval`
	return `(
		state = 'processing' and lease_until is not null and heartbeat_at < ` + before + `
		or (state = 'queued' or state = 'processing' and lease_until is null) and coalesce(heartbeat_at, created_at) < ` + before + `
			and not exists (select from workers where seen_at > ` + before + ` and jobs.task = any(workers.tasks)))`
}

// poisoned is the guard of a job that outlived its last worker: max claims, the
// parameter to use, each ended by a lease that ran out.
func poisoned(max string) string {
	return `state = 'processing' and lease_until < clock_timestamp() and lapses + 1 >= ` + max
}

// Stuck lists the jobs that Sweep would end, oldest first.
func (db *DB) Stuck(ctx context.Context, age time.Duration, limit int) ([]job.ID, error) {
	var ids []job.ID
	err := db.list(ctx, &ids, `
		select id from jobs where finished_at is null and (`+poisoned("$1")+` or `+silent("$2")+`)
		order by created_at limit $3`, job.MaxClaims, interval(age), limit)
	if err != nil {
		return nil, fmt.Errorf("look for stuck jobs: %w", err)
	}
	return ids, nil
}

// Sweep fails and refunds a job that showed no sign of life for age, or that
// took job.MaxClaims workers with it. False: it lives, or has ended.
func (db *DB) Sweep(ctx context.Context, id job.ID, age time.Duration, message string) (bool, error) {
	n, err := db.exec(ctx, failWhere(`(`+poisoned("$3")+` or `+silent("$4")+`)`, keepKey),
		string(id), message, job.MaxClaims, interval(age))
	if err != nil {
		return false, fmt.Errorf("sweep job %s: %w", id, err)
	}
	return n == 1, nil
}
