package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
)

// attempts of a statement that the database rolled back in favour of another.
const attempts = 5

// retry calls do again while the database says that it lost against a
// concurrent transaction: those two errors alone promise that nothing happened
// and that a repeat can succeed.
func retry(ctx context.Context, do func() error) error {
	for n := 1; ; n++ {
		err := do()
		if n == attempts || pq.As(err, pqerror.TRDeadlockDetected, pqerror.TRSerializationFailure) == nil {
			return err
		}
		select {
		case <-time.After(rand.N(time.Duration(n) * 10 * time.Millisecond)):
		case <-ctx.Done():
			return err
		}
	}
}

// get reads the one row of a statement.
func (db *DB) get(ctx context.Context, row any, statement string, args ...any) error {
	ctx, done := db.limit(ctx)
	defer done()
	return retry(ctx, func() error { return db.conn.GetContext(ctx, row, statement, args...) })
}

// list reads the rows of a statement.
func (db *DB) list(ctx context.Context, rows any, statement string, args ...any) error {
	ctx, done := db.limit(ctx)
	defer done()
	return retry(ctx, func() error { return db.conn.SelectContext(ctx, rows, statement, args...) })
}

// exec reports how many rows a statement changed.
func (db *DB) exec(ctx context.Context, statement string, args ...any) (int64, error) {
	ctx, done := db.limit(ctx)
	defer done()
	var changed int64
	err := retry(ctx, func() error {
		result, err := db.conn.ExecContext(ctx, statement, args...)
		if err != nil {
			return err
		}
		changed, err = result.RowsAffected()
		return err
	})
	return changed, err
}

// inTx is for what must not be repeated silently: see the package comment.
// After an error of the commit itself, what do did may have happened.
func (db *DB) inTx(ctx context.Context, do func(ctx context.Context, tx *sqlx.Tx) error) error {
	ctx, done := db.limit(ctx)
	defer done()
	return retry(ctx, func() error {
		tx, err := db.conn.BeginTxx(ctx, nil)
		if err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		defer tx.Rollback() // after a commit it does nothing; after a panic it frees the locks
		if err := do(ctx, tx); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		return nil
	})
}

// violates says that err is the breach of the named constraint.
func violates(err error, constraint string) bool {
	e := pq.As(err)
	return e != nil && e.Code.Class() == pqerror.ClassIntegrityConstraintViolation && e.Constraint == constraint
}

// interval is d as Postgres reads it.
func interval(d time.Duration) string { return fmt.Sprintf("%d microseconds", d.Microseconds()) }
