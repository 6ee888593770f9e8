package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"pictor/internal/fault"
	"pictor/internal/job"
	"pictor/internal/point"
)

// Job reads a job of an account; account 0 reads any. A job of another account
// is not found, like one that does not exist.
func (db *DB) Job(ctx context.Context, account int64, id job.ID) (job.Job, error) {
	return db.job(ctx, `select `+jobColumns+` from jobs where id = $1 and (account_id = $2::bigint or $2 = 0)`, string(id), account)
}

// JobsByID reads those of the jobs that exist. Every id must be a UUID.
func (db *DB) JobsByID(ctx context.Context, ids []job.ID) (map[job.ID]*job.Job, error) {
	var rows []jobRow
	if err := db.list(ctx, &rows, `select `+jobColumns+` from jobs where id = any($1::uuid[])`, pq.Array(ids)); err != nil {
		return nil, fmt.Errorf("read %d jobs: %w", len(ids), err)
	}
	byID := make(map[job.ID]*job.Job, len(rows))
	for _, r := range rows {
		j := r.job()
		byID[j.ID] = &j
	}
	return byID, nil
}

// Ended says which of the jobs are final. Every id must be a UUID.
func (db *DB) Ended(ctx context.Context, ids []job.ID) ([]job.ID, error) {
	var ended []job.ID
	if err := db.list(ctx, &ended, `select id from jobs where id = any($1::uuid[]) and finished_at is not null`, pq.Array(ids)); err != nil {
		return nil, fmt.Errorf("look which of %d jobs have ended: %w", len(ids), err)
	}
	return ended, nil
}

// JobByToken reads the completed job whose result has the token. It is not
// found once the result is deleted.
func (db *DB) JobByToken(ctx context.Context, token string) (job.Job, error) {
	return db.job(ctx, `select `+jobColumns+` from jobs where result_token = $1 and result_deleted_at is null`, token)
}

func (db *DB) job(ctx context.Context, statement string, args ...any) (job.Job, error) {
	var row jobRow
	err := db.get(ctx, &row, statement, args...)
	switch {
	case errors.Is(err, sql.ErrNoRows), pq.As(err, pqerror.InvalidTextRepresentation) != nil:
		return job.Job{}, fault.New(fault.NotFound, "No such job.")
	case err != nil:
		return job.Job{}, fmt.Errorf("read job: %w", err)
	}
	return row.job(), nil
}

// Billed is the account's balance right after the charge of the job.
func (db *DB) Billed(ctx context.Context, id job.ID) (point.Amount, error) {
	var balance point.Amount
	err := db.get(ctx, &balance, `select balance_after from ledger where job_id = $1 and kind = 'charge'`, string(id))
	if err != nil {
		return 0, fmt.Errorf("read the charge of job %s: %w", id, err)
	}
	return balance, nil
}

// Jobs lists the newest jobs of an account; account 0 lists those of all.
func (db *DB) Jobs(ctx context.Context, account int64, limit int) ([]job.Job, error) {
	var rows []jobRow
	err := db.list(ctx, &rows, `
		select `+jobColumns+` from jobs where account_id = $1::bigint or $1 = 0
		order by created_at desc, id desc limit $2`, account, limit)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return jobs(rows), nil
}
