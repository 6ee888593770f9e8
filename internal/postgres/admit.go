package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"pictor/internal/fault"
	"pictor/internal/job"
	"pictor/internal/point"
)

// reread is how long Admit looks for a job whose commit got no answer.
const reread = 2 * time.Second

// Admission asks for one charged job.
type Admission struct {
	ID          job.ID // a new version 7 UUID
	Account     int64
	Task        job.Task
	Input       job.Image
	Key         string // Idempotency-Key; "" for none
	Fingerprint []byte // of the whole request; with Key only
}

// Admitted is a job that is charged.
type Admitted struct {
	Job     job.Job
	Balance point.Amount // right after this job's charge, also on a replay

	// Replayed says that an earlier request with the same key made the job.
	Replayed bool

	// Enqueued says that the job's publish was confirmed. A replay of a job
	// without it finds a first request that died on its way: publish again.
	Enqueued bool
}

// Admit charges the account and records a queued job, or does neither and
// returns the fault: deleted account, key used for another request, too many
// running jobs, too small a balance (in this order), or Billing when the
// database cannot be asked. After Billing the job may still exist, unpublished:
// the sweeper then takes it back.
//
// The statement is the function in db/migrations/0002_admit.sql.
func (db *DB) Admit(ctx context.Context, a Admission) (Admitted, error) {
	var row struct {
		Verdict string         `db:"verdict"`
		Job     sql.NullString `db:"job"`
		Balance sql.NullInt64  `db:"balance"`
		Running sql.NullInt64  `db:"running"`
		At      time.Time      `db:"at"`
	}
	var key, fingerprint any
	if a.Key != "" {
		key, fingerprint = a.Key, a.Fingerprint
	}
	cost := a.Task.Cost()
	err := db.get(ctx, &row, `
		select verdict, job, balance, running, at
		from admit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
		string(a.ID), a.Account, string(a.Task), int64(cost), job.MaxRunning, job.Queued.Message(),
		a.Input.Type, a.Input.Size, a.Input.Width, a.Input.Height,
		key, fingerprint, interval(job.KeyLifetime))
	switch {
	case err != nil && rolledBack(err):
		return Admitted{}, fault.Billing(fmt.Errorf("admit job %s: %w", a.ID, err))
	case err != nil:
		return db.admitted(ctx, a.ID, a.ID, err)
	}

	switch row.Verdict {
	case "admitted":
		return Admitted{
			Job: job.Job{
				ID: a.ID, Account: a.Account, Task: a.Task, State: job.Queued, Message: job.Queued.Message(),
				Cost: cost, Input: a.Input, CreatedAt: row.At, UpdatedAt: row.At,
			},
			Balance: point.Amount(row.Balance.Int64),
		}, nil
	case "replayed":
		return db.admitted(ctx, a.ID, job.ID(row.Job.String), nil)
	case "mismatch":
		return Admitted{}, fault.New(fault.InvalidRequest,
			"This Idempotency-Key was used for another image or other options. Send a new key with a new request.")
	case "deleted":
		return Admitted{}, gone()
	case "running":
		return Admitted{}, fault.Running()
	case "balance":
		return Admitted{}, fault.Balance(cost, point.Amount(row.Balance.Int64))
	}
	return Admitted{}, fault.Billing(fmt.Errorf("admit job %s: unknown verdict %q", a.ID, row.Verdict))
}

// admitted reads the job that stands for the request asked: its own, or that
// of an earlier request with its key. lost is the error that hides whether the
// admission was committed; the request's context may have ended with it, so
// the look-up has a time of its own.
func (db *DB) admitted(ctx context.Context, asked, id job.ID, lost error) (Admitted, error) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), reread)
	defer done()
	var row struct {
		jobRow
		Balance  int64 `db:"balance_after"`
		Enqueued bool  `db:"enqueued"`
	}
	for {
		err := db.get(ctx, &row, `
			select `+jobColumns+`, enqueued_at is not null as enqueued,
				(select balance_after from ledger where job_id = jobs.id and kind = 'charge')
			from jobs where id = $1`, string(id))
		switch {
		case err == nil:
			return Admitted{
				Job: row.job(), Balance: point.Amount(row.Balance), Replayed: id != asked, Enqueued: row.Enqueued,
			}, nil
		case errors.Is(err, sql.ErrNoRows):
			return Admitted{}, fault.Billing(fmt.Errorf("admit job %s: not committed: %w", id, lost))
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return Admitted{}, fault.Billing(fmt.Errorf("admit job %s: unknown outcome: %w", id, errors.Join(lost, err)))
		}
	}
}

// rolledBack says that the error itself proves that nothing was committed. A
// duplicate job id proves the opposite: an earlier run of the same statement
// was.
func rolledBack(err error) bool {
	if violates(err, "jobs_pkey") {
		return false
	}
	e := pq.As(err)
	if e == nil {
		return false
	}
	switch e.Code.Class() {
	case pqerror.ClassIntegrityConstraintViolation, pqerror.ClassDataException, pqerror.ClassTransactionRollback,
		pqerror.ClassSyntaxErrorOrAccessRuleViolation, pqerror.ClassPLpgSQLError:
		return true
	}
	return false
}

func gone() *fault.Error {
	return fault.New(fault.AccountNotFound, "The account behind this key no longer exists.")
}
