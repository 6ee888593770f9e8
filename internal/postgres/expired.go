package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"pictor/internal/job"
)

// Expire marks the results of jobs that finished longer than ttl ago as gone,
// oldest first, and returns those jobs. JobByToken and Owns no longer know
// these results: delete them from the store.
func (db *DB) Expire(ctx context.Context, ttl time.Duration, limit int) ([]job.Job, error) {
	var rows []jobRow
	err := db.list(ctx, &rows, `
		update jobs set result_deleted_at = clock_timestamp()
		where id in (
			select id from jobs
			where finished_at < now() - $1::interval and result_token is not null and result_deleted_at is null
			order by finished_at limit $2 for no key update skip locked)
		returning `+jobColumns, interval(ttl), limit)
	if err != nil {
		return nil, fmt.Errorf("expire results: %w", err)
	}
	return jobs(rows), nil
}

// Inputs lists finished jobs whose input is still stored, oldest first. Delete
// the input, then say so with InputDeleted; after a crash in between the job is
// listed again.
func (db *DB) Inputs(ctx context.Context, limit int) ([]job.ID, error) {
	var ids []job.ID
	err := db.list(ctx, &ids, `
		select id from jobs where finished_at is not null and input_deleted_at is null
		order by finished_at limit $1`, limit)
	if err != nil {
		return nil, fmt.Errorf("look for inputs of finished jobs: %w", err)
	}
	return ids, nil
}

// InputDeleted records that the finished job's input is no longer stored.
func (db *DB) InputDeleted(ctx context.Context, id job.ID) error {
	_, err := db.exec(ctx, `
		update jobs set input_deleted_at = coalesce(input_deleted_at, clock_timestamp())
		where id = $1 and finished_at is not null`, string(id))
	if err != nil {
		return fmt.Errorf("record that the input of job %s was deleted: %w", id, err)
	}
	return nil
}

// Owns says whether the job, if there is one, needs the object under key: its
// input until that was marked as deleted, the result of its current claim while
// it runs, its published result until that has expired.
func (db *DB) Owns(ctx context.Context, id job.ID, key string) (bool, error) {
	var row []struct {
		Fence  int64 `db:"fence"`
		Input  bool  `db:"input"`
		Result bool  `db:"result"`
	}
	err := db.list(ctx, &row, `
		select fence, input_deleted_at is null as input,
			state = 'processing' or state = 'completed' and result_deleted_at is null as result
		from jobs where id = $1`, string(id))
	switch {
	case pq.As(err, pqerror.InvalidTextRepresentation) != nil:
		return false, nil // no job has such an id
	case err != nil:
		return false, fmt.Errorf("look for the owner of %s: %w", key, err)
	case len(row) == 0:
		return false, nil
	}
	return row[0].Input && key == id.InputKey() || row[0].Result && key == id.ResultKey(row[0].Fence), nil
}
