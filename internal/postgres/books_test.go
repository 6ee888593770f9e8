package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/fault"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/testkit/pgtest"
)

const (
	hour  = time.Hour
	over  = -time.Second // a lease that has run out
	stuck = 5 * time.Minute
)

// books is a database of the test with a second way in, past internal/postgres.
type books struct {
	*postgres.DB
	raw *sql.DB
	url string
}

// open gives the test its books; every invariant must hold when it ends.
func open(t *testing.T, conns int) books {
	t.Helper()
	b := openAny(t, conns)
	t.Cleanup(func() { b.hold(t) })
	return b
}

func openAny(t testing.TB, conns int) books {
	t.Helper()
	url := pgtest.URL(t)
	db, err := postgres.Open(t.Context(), url, postgres.Config{MaxConns: conns})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	raw, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	return books{db, raw, url}
}

// hold checks every invariant.
func (b books) hold(t *testing.T) {
	t.Helper()
	for _, v := range b.violations(t) {
		if v.Count != 0 {
			t.Errorf("%s: %d violations", v.Name, v.Count)
		}
	}
}

func (b books) violations(t *testing.T) []postgres.Violation {
	t.Helper()
	all, err := b.Invariants(context.WithoutCancel(t.Context()), stuck)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (b books) exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	if _, err := b.raw.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func (b books) number(t testing.TB, query string, args ...any) int64 {
	t.Helper()
	var n int64
	if err := b.raw.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// row is a job as the API would show it, without its times.
func (b books) row(t testing.TB, id job.ID) job.Job {
	t.Helper()
	j, err := b.Job(t.Context(), 0, id)
	if err != nil {
		t.Fatal(err)
	}
	j.CreatedAt, j.UpdatedAt, j.FinishedAt = time.Time{}, time.Time{}, time.Time{}
	return j
}

// purse is what an account has and runs.
type purse struct {
	Balance point.Amount
	Running int
}

func (b books) purse(t testing.TB, account int64) purse {
	t.Helper()
	a, err := b.AccountByID(t.Context(), account)
	if err != nil {
		t.Fatal(err)
	}
	return purse{a.Balance, a.Running}
}

// claim claims a job that must be there to claim.
func (b books) claim(t testing.TB, id job.ID, lease time.Duration) job.Job {
	t.Helper()
	j, verdict, err := b.Claim(t.Context(), id, lease)
	if err != nil || verdict != postgres.Claimed {
		t.Fatalf("claim %s: %v, %v", id, verdict, err)
	}
	return j
}

func result(id job.ID) postgres.Result {
	return postgres.Result{Type: job.PNG, Size: 2000, Token: "token of " + string(id)}
}

// refused says which fault err is, "" for none.
func refused(t testing.TB, err error) fault.Code {
	t.Helper()
	var f *fault.Error
	if err != nil && !errors.As(err, &f) {
		t.Fatalf("not a fault: %v", err)
	}
	if f == nil {
		return ""
	}
	return f.Code
}

func same[T any](t testing.TB, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// must unwraps a result that may not fail.
func must[T any](t testing.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
