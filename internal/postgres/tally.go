package postgres

import (
	"context"
	"fmt"

	"pictor/internal/job"
	"pictor/internal/point"
)

// Tally is how many jobs of a task stand in a state.
type Tally struct {
	Task  job.Task  `db:"task"`
	State job.State `db:"state"`
	Jobs  int64     `db:"jobs"`
}

// Unfinished counts the jobs that are queued or processing. It reads only
// those.
func (db *DB) Unfinished(ctx context.Context) ([]Tally, error) {
	return db.tally(ctx, `finished_at is null`)
}

// Finished counts the jobs that completed or failed. It reads every job there
// ever was.
func (db *DB) Finished(ctx context.Context) ([]Tally, error) {
	return db.tally(ctx, `finished_at is not null`)
}

func (db *DB) tally(ctx context.Context, which string) ([]Tally, error) {
	var all []Tally
	if err := db.list(ctx, &all, `select task, state, count(*) as jobs from jobs where `+which+` group by task, state`); err != nil {
		return nil, fmt.Errorf("count jobs: %w", err)
	}
	return all, nil
}

// Movement is what all ledger rows of a kind amount to.
type Movement struct {
	Kind   string       `db:"kind"`
	Amount point.Amount `db:"amount"` // signed
}

// Movements sums the ledger up by kind. It reads all of it.
func (db *DB) Movements(ctx context.Context) ([]Movement, error) {
	var all []Movement
	if err := db.list(ctx, &all, `select kind, sum(amount)::bigint as amount from ledger group by kind`); err != nil {
		return nil, fmt.Errorf("sum the ledger up: %w", err)
	}
	return all, nil
}
