package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"

	"pictor/internal/point"
)

// Credit adds to an account's balance, or takes from it when amount is
// negative, but never below zero. After an error of the connection the ledger
// shows whether it happened.
func (db *DB) Credit(ctx context.Context, account int64, amount point.Amount, note string) (LedgerRow, error) {
	var row LedgerRow
	err := db.inTx(ctx, func(ctx context.Context, tx *sqlx.Tx) error {
		var balance int64
		err := tx.GetContext(ctx, &balance, `
			update accounts set balance = balance + $2
			where id = $1 and deleted_at is null and balance + $2 between 0 and $3
			returning balance`, account, int64(amount), int64(point.Max))
		if err != nil {
			return err
		}
		return tx.GetContext(ctx, &row, `
			insert into ledger (account_id, kind, amount, balance_after, note) values ($1, 'credit', $2, $3, $4)
			returning id, kind, amount, balance_after, job_id, note, created_at`, account, int64(amount), balance, note)
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = db.refusedCredit(ctx, account, amount)
	}
	if err != nil {
		return LedgerRow{}, fmt.Errorf("credit account %d with %s Point: %w", account, amount, err)
	}
	return row, nil
}

func (db *DB) refusedCredit(ctx context.Context, account int64, amount point.Amount) error {
	a, err := db.AccountByID(ctx, account)
	switch {
	case err != nil:
		return err
	case a.Deleted:
		return ErrNoAccount
	case amount < 0:
		return fmt.Errorf("the balance is %s Point: %w", a.Balance, ErrOverdraft)
	default:
		return fmt.Errorf("the balance is %s Point: %w", a.Balance, ErrTooMuch)
	}
}

// Ledger lists the movements of an account, oldest first.
func (db *DB) Ledger(ctx context.Context, account int64) ([]LedgerRow, error) {
	rows := []LedgerRow{}
	err := db.EachMovement(ctx, account, Span{}, func(row LedgerRow) error {
		rows = append(rows, row)
		return nil
	})
	return rows, err
}
