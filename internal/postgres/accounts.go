package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"

	"pictor/internal/point"
)

// What the operator's commands can meet.
var (
	ErrNoAccount = errors.New("no such account")
	ErrNameTaken = errors.New("an account of this name exists")
	ErrNoKey     = errors.New("no such key")
	ErrKeys      = errors.New("the account has as many keys as it may: revoke one first")
	ErrOverdraft = errors.New("the balance would fall below zero")
	ErrTooMuch   = errors.New("the balance would be too large")
)

// CreateAccount makes an account. Its opening balance is a credit in the
// ledger, so that an account's ledger always sums up to its balance.
func (db *DB) CreateAccount(ctx context.Context, name string, balance point.Amount, vip bool) (Account, error) {
	if balance < 0 {
		return Account{}, fmt.Errorf("create account %q with %s Point: %w", name, balance, ErrOverdraft)
	}
	var a Account
	err := db.inTx(ctx, func(ctx context.Context, tx *sqlx.Tx) error {
		err := tx.GetContext(ctx, &a, `
			insert into accounts (name, vip, balance) values ($1, $2, $3) returning `+accountColumns, name, vip, int64(balance))
		if err != nil || balance == 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, `
			insert into ledger (account_id, kind, amount, balance_after, note) values ($1, 'credit', $2, $2, 'opening balance')`,
			a.ID, int64(balance))
		return err
	})
	switch {
	case violates(err, "accounts_name"):
		return Account{}, fmt.Errorf("create account %q: %w", name, ErrNameTaken)
	case violates(err, "accounts_name_check"):
		return Account{}, fmt.Errorf("create account %q: want a name of 1 to 200 characters", name)
	case err != nil:
		return Account{}, fmt.Errorf("create account %q: %w", name, err)
	}
	return a, nil
}

// Account reads an account by its name. Of several that had the name it is the
// living one, else the one deleted last.
func (db *DB) Account(ctx context.Context, name string) (Account, error) {
	return db.account(ctx, fmt.Sprintf("account %q", name), `
		select `+accountColumns+` from accounts where name = $1 order by deleted_at desc nulls first limit 1`, name)
}

// AccountByID reads an account, deleted or not.
func (db *DB) AccountByID(ctx context.Context, id int64) (Account, error) {
	return db.account(ctx, fmt.Sprintf("account %d", id), `select `+accountColumns+` from accounts where id = $1`, id)
}

func (db *DB) account(ctx context.Context, who, statement string, args ...any) (Account, error) {
	var a Account
	err := db.get(ctx, &a, statement, args...)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoAccount
	}
	if err != nil {
		return Account{}, fmt.Errorf("%s: %w", who, err)
	}
	return a, nil
}

// Accounts lists the accounts, also the deleted ones.
func (db *DB) Accounts(ctx context.Context) ([]Account, error) {
	accounts := []Account{}
	if err := db.list(ctx, &accounts, `select `+accountColumns+` from accounts order by id`); err != nil {
		return nil, fmt.Errorf("list accounts: %w", err)
	}
	return accounts, nil
}

// DeleteAccount deletes an account. Its keys stay and are answered with
// AccountNotFound, its running jobs end as they would have, its ledger remains.
func (db *DB) DeleteAccount(ctx context.Context, id int64) error {
	n, err := db.exec(ctx, `
		update accounts set deleted_at = coalesce(deleted_at, clock_timestamp()) where id = $1`, id)
	if err == nil && n == 0 {
		err = ErrNoAccount
	}
	if err != nil {
		return fmt.Errorf("delete account %d: %w", id, err)
	}
	return nil
}
