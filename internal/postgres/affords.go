package postgres

import (
	"context"
	"fmt"

	"pictor/internal/fault"
	"pictor/internal/job"
	"pictor/internal/point"
)

// Affords is a cheap look, without a lock, at whether Admit would charge the
// account now. It returns the fault that Admit would. Only Admit decides.
func (db *DB) Affords(ctx context.Context, account int64, cost point.Amount) error {
	var row []struct {
		Balance point.Amount `db:"balance"`
		Running int          `db:"running"`
	}
	err := db.list(ctx, &row, `select balance, running from accounts where id = $1 and deleted_at is null`, account)
	switch {
	case err != nil:
		return fault.Billing(fmt.Errorf("read the balance of account %d: %w", account, err))
	case len(row) == 0:
		return gone()
	case row[0].Running >= job.MaxRunning:
		return fault.Running()
	case row[0].Balance < cost:
		return fault.Balance(cost, row[0].Balance)
	}
	return nil
}
