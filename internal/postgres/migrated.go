package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	migrations "pictor/db"
)

// Migrated gives an error when the database lacks a migration of this binary.
// One that is ahead lacks none: an older binary goes on beside a newer one.
func (db *DB) Migrated(ctx context.Context) error {
	want, err := migrations.Versions()
	if err != nil {
		return err
	}
	var applied []int64
	err = db.list(ctx, &applied, `select version_id from goose_db_version where is_applied`)
	if err != nil && pq.As(err, pqerror.UndefinedTable) == nil {
		return fmt.Errorf("read the state of the migrations: %w", err)
	}
	for _, v := range want {
		if !slices.Contains(applied, v) {
			return fmt.Errorf("the database lacks migration %d: run `pictor migrate up`", v)
		}
	}
	return nil
}
