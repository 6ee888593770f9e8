package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"

	"pictor/internal/apikey"
	"pictor/internal/fault"
	"pictor/internal/job"
)

// Authenticate reads the account behind a key. An unknown or revoked key is a
// fault; a deleted account is not: the caller answers it.
func (db *DB) Authenticate(ctx context.Context, hash apikey.Hash) (Account, error) {
	var a Account
	err := db.get(ctx, &a, `
		select `+accountColumns+` from accounts
		where id = (select account_id from api_keys where hash = $1 and revoked_at is null)`, hash[:])
	if errors.Is(err, sql.ErrNoRows) {
		return Account{}, fault.New(fault.InvalidKey, "The API key is not valid.")
	}
	if err != nil {
		return Account{}, fmt.Errorf("look up the API key: %w", err)
	}
	return a, nil
}

// CreateKey adds a key to an account, unless it has job.MaxKeys already. The
// account's counter decides, under its row lock, so two at once cannot both
// take the last place.
func (db *DB) CreateKey(ctx context.Context, account int64, key apikey.Key, name string) (Key, error) {
	hash := key.Hash()
	var k Key
	err := db.inTx(ctx, func(ctx context.Context, tx *sqlx.Tx) error {
		var keys int
		err := tx.GetContext(ctx, &keys, `
			update accounts set keys = keys + 1 where id = $1 and deleted_at is null and keys < $2 returning keys`,
			account, job.MaxKeys)
		if err != nil {
			return err
		}
		return tx.GetContext(ctx, &k, `
			insert into api_keys (account_id, hash, hint, name) values ($1, $2, $3, $4)
			returning id, account_id, hash, name, hint, created_at, revoked_at`, account, hash[:], key.Hint(), name)
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrKeys
		if a, readErr := db.AccountByID(ctx, account); readErr != nil || a.Deleted {
			err = errors.Join(ErrNoAccount, readErr)
		}
	}
	if err != nil {
		return Key{}, fmt.Errorf("create a key of account %d: %w", account, err)
	}
	return k, nil
}

// Keys lists the keys of an account, also the revoked ones.
func (db *DB) Keys(ctx context.Context, account int64) ([]Key, error) {
	keys := []Key{}
	err := db.list(ctx, &keys, `
		select id, account_id, hash, name, hint, created_at, revoked_at from api_keys where account_id = $1 order by id`, account)
	if err != nil {
		return nil, fmt.Errorf("list the keys of account %d: %w", account, err)
	}
	return keys, nil
}

// RevokeKey ends a key and makes room for another. Revoking it again changes
// nothing.
func (db *DB) RevokeKey(ctx context.Context, id int64) (Key, error) {
	_, err := db.exec(ctx, `
		with revoked as (
			update api_keys set revoked_at = clock_timestamp() where id = $1 and revoked_at is null returning account_id
		)
		update accounts set keys = accounts.keys - 1 from revoked where accounts.id = revoked.account_id`, id)
	if err != nil {
		return Key{}, fmt.Errorf("revoke key %d: %w", id, err)
	}
	var k Key
	err = db.get(ctx, &k, `select id, account_id, hash, name, hint, created_at, revoked_at from api_keys where id = $1`, id)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoKey
	}
	if err != nil {
		return Key{}, fmt.Errorf("revoke key %d: %w", id, err)
	}
	return k, nil
}
