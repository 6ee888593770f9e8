package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"pictor/db"
	"pictor/internal/apikey"
	"pictor/internal/bus"
	"pictor/internal/httpapi"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
)

// What the operator's commands print.
type (
	Account   = postgres.Account
	Key       = postgres.Key
	Movement  = postgres.LedgerRow
	Migration = db.Migration
)

// patience is how long a command waits for one answer of the database: sums
// over a large ledger take their time, and a person can interrupt them.
const patience = 5 * time.Minute

// Admin is what the operator's commands work on.
type Admin struct {
	DB *postgres.DB

	connection Connection
	info       DevInfo // of the dev stack that was found, if one was
	log        *slog.Logger
}

// OpenAdmin connects to the database.
func OpenAdmin(ctx context.Context, c Connection, log *slog.Logger) (*Admin, error) {
	info, err := c.resolve()
	if err != nil {
		return nil, &UsageError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	database, err := postgres.Open(ctx, c.DatabaseURL, postgres.Config{Name: "pictor-cli", MaxConns: 2, Timeout: patience})
	if err != nil {
		return nil, err
	}
	if err := database.Migrated(ctx); err != nil {
		_ = database.Close()
		return nil, err
	}
	return &Admin{database, c, info, log}, nil
}

// Close ends the connection.
func (a *Admin) Close() { _ = a.DB.Close() }

// NewKey is a key and its secret, which is shown once and never stored.
type NewKey struct {
	Key
	Secret apikey.Key `json:"key"`
}

// CreateKey makes a key for an account.
func (a *Admin) CreateKey(ctx context.Context, account string, look Keys, name string) (NewKey, error) {
	of, err := a.DB.Account(ctx, account)
	if err != nil {
		return NewKey{}, err
	}
	secret := apikey.New(look.KeyPrefix)
	k, err := a.DB.CreateKey(ctx, of.ID, secret, name)
	return NewKey{k, secret}, err
}

// Keys lists the keys of an account.
func (a *Admin) Keys(ctx context.Context, account string) ([]Key, error) {
	of, err := a.DB.Account(ctx, account)
	if err != nil {
		return nil, err
	}
	return a.DB.Keys(ctx, of.ID)
}

// Credit changes the balance of an account.
func (a *Admin) Credit(ctx context.Context, account string, amount point.Amount, note string) (postgres.LedgerRow, error) {
	of, err := a.DB.Account(ctx, account)
	if err != nil {
		return postgres.LedgerRow{}, err
	}
	return a.DB.Credit(ctx, of.ID, amount, note)
}

// RevokeKey ends a key, and tells every API process to forget it.
func (a *Admin) RevokeKey(ctx context.Context, id int64) (postgres.Key, error) {
	k, err := a.DB.RevokeKey(ctx, id)
	if err == nil {
		a.forget(k)
	}
	return k, err
}

// DeleteAccount deletes an account, and makes every API process look its keys
// up again.
func (a *Admin) DeleteAccount(ctx context.Context, name string) (postgres.Account, error) {
	of, err := a.DB.Account(ctx, name)
	if err != nil {
		return of, err
	}
	if err := a.DB.DeleteAccount(ctx, of.ID); err != nil {
		return of, err
	}
	keys, err := a.DB.Keys(ctx, of.ID)
	if err != nil {
		return of, err
	}
	a.forget(keys...)
	return a.DB.AccountByID(ctx, of.ID)
}

// forget is best effort: without it a key is remembered for at most a minute.
func (a *Admin) forget(keys ...postgres.Key) {
	queue, err := bus.Connect(a.connection.queue("pictor-cli"), slog.New(slog.DiscardHandler))
	if err == nil {
		defer queue.Close()
		for _, k := range keys {
			if err == nil {
				err = queue.Revoked(apikey.Hash(k.Hash))
			}
		}
		if err == nil {
			err = queue.Flush()
		}
	}
	if err != nil {
		a.log.Warn("the queue cannot be reached: running API processes may accept the key for another minute", "error", err)
	}
}

// JobRow is a job as the API shows it, and whose it is.
type JobRow struct {
	job.Job
	Account string

	document json.RawMessage
}

// MarshalJSON writes the fields of the API's Job, and the account.
func (r JobRow) MarshalJSON() ([]byte, error) {
	account, err := json.Marshal(r.Account)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `%s,"account":%s}`, r.document[:len(r.document)-1], account), nil
}

// Jobs lists the newest jobs, of one account or of all when the name is empty.
func (a *Admin) Jobs(ctx context.Context, links Links, account string, limit int) ([]JobRow, error) {
	var id int64
	if account != "" {
		of, err := a.DB.Account(ctx, account)
		if err != nil {
			return nil, err
		}
		id = of.ID
	}
	jobs, err := a.DB.Jobs(ctx, id, limit)
	if err != nil {
		return nil, err
	}
	return a.rows(ctx, links, jobs...)
}

// Job is one job of any account.
func (a *Admin) Job(ctx context.Context, links Links, id job.ID) (JobRow, error) {
	j, err := a.DB.Job(ctx, 0, id)
	if err != nil {
		return JobRow{}, err
	}
	rows, err := a.rows(ctx, links, j)
	if err != nil {
		return JobRow{}, err
	}
	return rows[0], nil
}

func (a *Admin) rows(ctx context.Context, links Links, jobs ...job.Job) ([]JobRow, error) {
	documents, err := httpapi.NewDocuments(a.roots(links))
	if err != nil {
		return nil, err
	}
	accounts, err := a.DB.Accounts(ctx)
	if err != nil {
		return nil, err
	}
	names := make(map[int64]string, len(accounts))
	for _, of := range accounts {
		names[of.ID] = of.Name
	}
	rows := make([]JobRow, len(jobs))
	for i, j := range jobs {
		document, err := documents.Job(j)
		if err != nil {
			return nil, err
		}
		rows[i] = JobRow{j, names[j.Account], document}
	}
	return rows, nil
}

// roots are what the links of a job begin with.
func (a *Admin) roots(given Links) (base, results string) {
	base = or(given.BaseURL, or(a.info.BaseURL, "http://"+string(defaultListen)+apiRoot))
	return base, or(given.ResultsURL, or(a.info.ResultsURL, "http://"+string(defaultResults)))
}
