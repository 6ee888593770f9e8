package postgres

import (
	"context"
	"fmt"

	"pictor/internal/job"
)

// Trace records the trace that a job belongs to.
func (db *DB) Trace(ctx context.Context, id job.ID, trace string) error {
	if _, err := db.exec(ctx, `update jobs set trace = $2 where id = $1`, string(id), trace); err != nil {
		return fmt.Errorf("record the trace of job %s: %w", id, err)
	}
	return nil
}
