package pgtest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"pictor/internal/apikey"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
)

// NewAccount makes an account with a balance.
func NewAccount(t testing.TB, db *postgres.DB, balance point.Amount) postgres.Account {
	t.Helper()
	a, err := db.CreateAccount(t.Context(), "account "+uuid.NewString(), balance, false)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// NewKey gives an account a key.
func NewKey(t testing.TB, db *postgres.DB, account int64) apikey.Key {
	t.Helper()
	key := apikey.New("pictor")
	if _, err := db.CreateKey(t.Context(), account, key, ""); err != nil {
		t.Fatal(err)
	}
	return key
}

// NewID makes the id of a job.
func NewID(t testing.TB) job.ID {
	t.Helper()
	id, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	return job.ID(id.String())
}

// Admission is a request of the account for a remove-bg of a small PNG.
func Admission(t testing.TB, account int64) postgres.Admission {
	t.Helper()
	return postgres.Admission{
		ID: NewID(t), Account: account, Task: job.RemoveBG,
		Input: job.Image{Type: job.PNG, Size: 1000, Width: 40, Height: 30},
	}
}

// Queued admits a job, its publish not confirmed.
func Queued(t testing.TB, db *postgres.DB, account int64) job.Job {
	t.Helper()
	admitted, err := db.Admit(t.Context(), Admission(t, account))
	if err != nil {
		t.Fatal(err)
	}
	return admitted.Job
}

// Claimed admits and claims a job; the lease is a minute.
func Claimed(t testing.TB, db *postgres.DB, account int64) job.Job {
	t.Helper()
	j, verdict, err := db.Claim(t.Context(), Queued(t, db, account).ID, time.Minute)
	if err != nil || verdict != postgres.Claimed {
		t.Fatalf("claim: %v, %v", verdict, err)
	}
	return j
}
