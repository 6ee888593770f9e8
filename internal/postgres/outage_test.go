package postgres_test

import (
	"context"
	"testing"
	"time"

	"pictor/internal/fault"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/testkit/pgtest"
)

// lossy is the books reached through a proxy, and the books themselves.
func lossy(t *testing.T) (through *postgres.DB, p *proxy, b books) {
	t.Helper()
	b = open(t, 4)
	p = newProxy(t, b.url)
	through, err := postgres.Open(t.Context(), p.url, postgres.Config{MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = through.Close() })
	return through, p, b
}

// database/sql runs a statement up to three times when connections die.
const runs = 3

// The network is cut after the commit and before its answer. lib/pq takes the
// closed connection for a dead one and database/sql silently runs the statement
// again: an admission without care would be charged twice, or refused because
// its own first run took the last slot.
func TestAdmit_whose_answer_is_lost_is_found_again(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		answers int
		balance point.Amount
		key     string
	}{
		{"by the repeat", 1, 1000, ""},
		{"by the repeat, on an empty account", 1, 100, ""},
		{"by the repeat, under its key", 1, 1000, "key"},
		{"by looking for it", runs, 1000, ""},
		{"by looking for it, under its key", runs, 100, "key"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			through, p, b := lossy(t)
			a := pgtest.NewAccount(t, b.DB, row.balance)
			ask := keyed(t, a.ID, row.key, "one")
			p.lose("from admit(", row.answers, 0, false)

			admitted, err := through.Admit(t.Context(), ask)

			if err != nil {
				t.Fatal(err)
			}
			same(t, "answers lost", row.answers, p.losses())
			same(t, "replayed", false, admitted.Replayed)
			same(t, "job", ask.ID, admitted.Job.ID)
			same(t, "balance", row.balance-100, admitted.Balance)
			same(t, "account", purse{row.balance - 100, 1}, b.purse(t, a.ID))
		})
	}
}

// Nobody can know what became of the charge. The client hears that billing
// fails; the job is there, was never published, and the sweeper refunds it.
func TestAdmit_with_an_unknown_outcome_is_refused_and_refunded_later(t *testing.T) {
	t.Parallel()
	through, p, b := lossy(t)
	a := pgtest.NewAccount(t, b.DB, 1000)
	ask := keyed(t, a.ID, "key", "one")
	p.lose("from admit(", 1, 0, true)

	_, err := through.Admit(t.Context(), ask)

	same(t, "refusal", fault.BillingUnavailable, refused(t, err))
	same(t, "account", purse{900, 1}, b.purse(t, a.ID))
	same(t, "orphans", []job.ID{ask.ID}, must[[]job.ID](t)(b.Orphans(t.Context(), 0, 10)))
	same(t, "cancelled", true, must[bool](t)(b.Cancel(t.Context(), ask.ID, "no")))
	same(t, "account", purse{1000, 0}, b.purse(t, a.ID))
}

func TestAdmit_that_never_arrived_charges_nothing(t *testing.T) {
	t.Parallel()
	through, p, b := lossy(t)
	a := pgtest.NewAccount(t, b.DB, 1000)
	p.lose("from admit(", 0, runs, false)

	_, err := through.Admit(t.Context(), pgtest.Admission(t, a.ID))

	same(t, "refusal", fault.BillingUnavailable, refused(t, err))
	same(t, "account", purse{1000, 0}, b.purse(t, a.ID))
}

// A client that leaves while its admission waits for the account's row must
// not leave a charge that nobody looks after.
func TestAdmit_whose_client_leaves_is_decided_all_the_same(t *testing.T) {
	t.Parallel()
	b := open(t, 4)
	a := pgtest.NewAccount(t, b.DB, 1000)
	holder, err := b.raw.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(`select from accounts where id = $1 for update`, a.ID); err != nil {
		t.Fatal(err)
	}
	short, done := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer done()
	ask := pgtest.Admission(t, a.ID)
	_, err = b.Admit(short, ask)
	same(t, "refusal", fault.BillingUnavailable, refused(t, err))
	if err := holder.Rollback(); err != nil {
		t.Fatal(err)
	}
	same(t, "account", purse{1000, 0}, b.purse(t, a.ID))
}

// A worker that believed its result lost would throw away what the database
// has just published.
func TestEnds_whose_answer_is_lost_are_true(t *testing.T) {
	t.Parallel()
	for _, answers := range []int{1, runs} {
		through, p, b := lossy(t)
		a := pgtest.NewAccount(t, b.DB, 1000)
		for _, end := range []struct {
			marker string
			do     func(job.Job) (bool, error)
		}{
			{"set state = 'completed'", func(j job.Job) (bool, error) { return through.Complete(t.Context(), j.ID, j.Fence, result(j.ID)) }},
			{"set state = 'failed'", func(j job.Job) (bool, error) { return through.Fail(t.Context(), j.ID, j.Fence, "no") }},
		} {
			j := pgtest.Claimed(t, b.DB, a.ID)
			p.lose(end.marker, answers, 0, false)
			done, err := end.do(j)
			if answers == runs { // the caller asks again, as for any error
				if err == nil {
					t.Error("three lost answers gave no error")
				}
				done, err = end.do(j)
			}
			same(t, end.marker, []any{true, nil}, []any{done, err})
		}
		same(t, "account", purse{900, 0}, b.purse(t, a.ID))
	}
}

// A credit cannot be told from its repeat, so it must not be repeated.
func TestCredit_whose_answer_is_lost_is_not_given_twice(t *testing.T) {
	t.Parallel()
	through, p, b := lossy(t)
	a := pgtest.NewAccount(t, b.DB, 1000)
	p.lose("COMMIT", 1, 0, false)
	if _, err := through.Credit(t.Context(), a.ID, 500, ""); err == nil {
		t.Error("a lost answer gave no error")
	}
	same(t, "answers lost", 1, p.losses())
	same(t, "account", purse{1500, 0}, b.purse(t, a.ID))
}
