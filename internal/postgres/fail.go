package postgres

import (
	"context"
	"fmt"

	"pictor/internal/job"
)

// failWhere ends a job and gives its Point back in one statement: the job's
// row, then the account's, then the ledger. The guard decides, on the newest
// version of the job's row, whether anything happens at all. A second refund
// would also break the ledger's unique key.
func failWhere(guard, release string) string {
	return `
	with failed as (
		update jobs
		set state = 'failed', refunded = true, message = $2, lease_until = null` + release + `,
			finished_at = clock_timestamp(), updated_at = clock_timestamp()
		where id = $1 and ` + guard + `
		returning id, account_id, cost
	), refunded as (
		update accounts
		set balance = accounts.balance + failed.cost, running = accounts.running - 1
		from failed where accounts.id = failed.account_id
		returning accounts.id, accounts.balance
	)
	insert into ledger (account_id, job_id, kind, amount, balance_after)
	select failed.account_id, failed.id, 'refund', failed.cost, refunded.balance
	from failed join refunded on refunded.id = failed.account_id`
}

// keepKey and releaseKey say what becomes of the Idempotency-Key: a job that a
// client was told of keeps it, one that was never accepted gives it back.
const (
	keepKey    = ``
	releaseKey = `, idempotency_key = null, idempotency_hash = null`
)

// Fail ends the job of the worker that holds the fence, and refunds it. False:
// the fence is lost, and nothing changed. A repeat after a lost answer is true.
func (db *DB) Fail(ctx context.Context, id job.ID, fence int64, message string) (bool, error) {
	n, err := db.exec(ctx, failWhere(`state = 'processing' and fence = $3`, keepKey), string(id), message, fence)
	if err == nil && n == 0 {
		n, err = db.count(ctx, `select count(*) from jobs where id = $1 and state = 'failed' and fence = $2`, string(id), fence)
	}
	if err != nil {
		return false, fmt.Errorf("fail job %s: %w", id, err)
	}
	return n == 1, nil
}

func (db *DB) count(ctx context.Context, statement string, args ...any) (int64, error) {
	var n int64
	err := db.get(ctx, &n, statement, args...)
	return n, err
}
