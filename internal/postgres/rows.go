package postgres

import (
	"database/sql"
	"time"

	"pictor/internal/job"
	"pictor/internal/point"
)

// jobColumns are the columns of jobRow, for every statement that reads jobs.
const jobColumns = `id, account_id, task, state, progress, message, cost, refunded, fence, lapses,
	input_type, input_size, input_width, input_height,
	coalesce(result_token, '') as result_token, coalesce(result_type, '') as result_type, coalesce(result_size, 0) as result_size,
	created_at, updated_at, finished_at, coalesce(trace, '') as trace`

type jobRow struct {
	ID          string       `db:"id"`
	Account     int64        `db:"account_id"`
	Task        string       `db:"task"`
	State       string       `db:"state"`
	Progress    int          `db:"progress"`
	Message     string       `db:"message"`
	Cost        int64        `db:"cost"`
	Refunded    bool         `db:"refunded"`
	Fence       int64        `db:"fence"`
	Lapses      int          `db:"lapses"`
	InputType   string       `db:"input_type"`
	InputSize   int64        `db:"input_size"`
	InputWidth  int          `db:"input_width"`
	InputHeight int          `db:"input_height"`
	ResultToken string       `db:"result_token"`
	ResultType  string       `db:"result_type"`
	ResultSize  int64        `db:"result_size"`
	CreatedAt   time.Time    `db:"created_at"`
	UpdatedAt   time.Time    `db:"updated_at"`
	FinishedAt  sql.NullTime `db:"finished_at"`
	Trace       string       `db:"trace"`
}

func (r jobRow) job() job.Job {
	return job.Job{
		ID:          job.ID(r.ID),
		Account:     r.Account,
		Task:        job.Task(r.Task),
		State:       job.State(r.State),
		Progress:    r.Progress,
		Message:     r.Message,
		Cost:        point.Amount(r.Cost),
		Refunded:    r.Refunded,
		Fence:       r.Fence,
		Lapses:      r.Lapses,
		Input:       job.Image{Type: r.InputType, Size: r.InputSize, Width: r.InputWidth, Height: r.InputHeight},
		ResultToken: r.ResultToken,
		ResultType:  r.ResultType,
		ResultSize:  r.ResultSize,
		CreatedAt:   r.CreatedAt,
		UpdatedAt:   r.UpdatedAt,
		FinishedAt:  r.FinishedAt.Time,
		Trace:       r.Trace,
	}
}

func jobs(rows []jobRow) []job.Job {
	all := make([]job.Job, len(rows))
	for i, r := range rows {
		all[i] = r.job()
	}
	return all
}

const accountColumns = `id, name, vip, balance, running, keys, deleted_at is not null as deleted, created_at`

// Account is one customer.
type Account struct {
	ID        int64        `db:"id" json:"id"`
	Name      string       `db:"name" json:"name"`
	VIP       bool         `db:"vip" json:"vip"`
	Balance   point.Amount `db:"balance" json:"balance"`
	Running   int          `db:"running" json:"running"` // queued and processing jobs
	Keys      int          `db:"keys" json:"keys"`       // keys that are not revoked
	Deleted   bool         `db:"deleted" json:"deleted"`
	CreatedAt time.Time    `db:"created_at" json:"created_at"`
}

// LedgerRow is one movement of an account's Point. The rows of an account sum
// up to its balance.
type LedgerRow struct {
	ID           int64        `db:"id" json:"id"`
	Kind         string       `db:"kind" json:"kind"`     // charge, refund or credit
	Amount       point.Amount `db:"amount" json:"amount"` // signed
	BalanceAfter point.Amount `db:"balance_after" json:"balance_after"`
	JobID        *job.ID      `db:"job_id" json:"job_id"` // of a charge and a refund
	Note         string       `db:"note" json:"note"`
	CreatedAt    time.Time    `db:"created_at" json:"created_at"`
}

// Key is what is kept of an API key.
type Key struct {
	ID        int64      `db:"id" json:"id"`
	Account   int64      `db:"account_id" json:"account_id"`
	Name      string     `db:"name" json:"name"`
	Hint      string     `db:"hint" json:"hint"`
	Hash      []byte     `db:"hash" json:"-"` // what processes that remember the key know it by
	CreatedAt time.Time  `db:"created_at" json:"created_at"`
	RevokedAt *time.Time `db:"revoked_at" json:"revoked_at"`
}
