package postgres

import (
	"context"
	"fmt"
	"time"

	"pictor/internal/job"
)

// Ages is how long the oldest queued job of each task has waited. Tasks without
// one are not in it.
func (db *DB) Ages(ctx context.Context) (map[job.Task]time.Duration, error) {
	var rows []struct {
		Task    job.Task `db:"task"`
		Seconds float64  `db:"seconds"`
	}
	err := db.list(ctx, &rows, `
		select task, extract(epoch from clock_timestamp() - min(created_at))::float8 as seconds
		from jobs where finished_at is null and state = 'queued' group by task`)
	if err != nil {
		return nil, fmt.Errorf("read the ages of queued jobs: %w", err)
	}
	ages := make(map[job.Task]time.Duration)
	for _, r := range rows {
		ages[r.Task] = time.Duration(r.Seconds * float64(time.Second))
	}
	return ages, nil
}

// Stored is how many bytes of inputs and results the store holds for jobs.
func (db *DB) Stored(ctx context.Context) (inputs, results int64, err error) {
	var sums struct {
		Inputs  int64 `db:"inputs"`
		Results int64 `db:"results"`
	}
	err = db.get(ctx, &sums, `
		select (select coalesce(sum(input_size), 0)::bigint from jobs where finished_at is null)
			+ (select coalesce(sum(input_size), 0)::bigint from jobs where finished_at is not null and input_deleted_at is null) as inputs,
			(select coalesce(sum(result_size), 0)::bigint from jobs
				where finished_at is not null and result_token is not null and result_deleted_at is null) as results`)
	if err != nil {
		return 0, 0, fmt.Errorf("sum up what is stored: %w", err)
	}
	return sums.Inputs, sums.Results, nil
}
