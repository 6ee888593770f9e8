package postgres_test

import (
	"sync/atomic"
	"testing"

	"pictor/internal/fault"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/testkit/pgtest"
)

// keyed is a request with the key and the content.
func keyed(t testing.TB, account int64, key, content string) postgres.Admission {
	ask := pgtest.Admission(t, account)
	ask.Key, ask.Fingerprint = key, []byte(content)
	return ask
}

func TestAdmit_repeats_the_first_job_of_a_key(t *testing.T) {
	t.Parallel()
	b := open(t, 4)

	t.Run("with the balance after its own charge", func(t *testing.T) {
		t.Parallel()
		a := pgtest.NewAccount(t, b.DB, 1000)
		first := must[postgres.Admitted](t)(b.Admit(t.Context(), keyed(t, a.ID, "k", "one")))
		must[postgres.Admitted](t)(b.Admit(t.Context(), keyed(t, a.ID, "other", "one")))
		again := must[postgres.Admitted](t)(b.Admit(t.Context(), keyed(t, a.ID, "k", "one")))
		same(t, "replay", postgres.Admitted{Job: again.Job, Balance: 900, Replayed: true}, again)
		same(t, "job", first.Job.ID, again.Job.ID)
		same(t, "account", purse{800, 2}, b.purse(t, a.ID))
	})
	t.Run("in every state", func(t *testing.T) {
		t.Parallel()
		a := pgtest.NewAccount(t, b.DB, 1000)
		for _, state := range job.States() {
			first := must[postgres.Admitted](t)(b.Admit(t.Context(), keyed(t, a.ID, string(state), "one"))).Job
			if state != job.Queued {
				first = b.claim(t, first.ID, hour)
			}
			switch state {
			case job.Completed:
				must[bool](t)(b.Complete(t.Context(), first.ID, first.Fence, result(first.ID)))
			case job.Failed:
				must[bool](t)(b.Fail(t.Context(), first.ID, first.Fence, "no"))
			}
			again := must[postgres.Admitted](t)(b.Admit(t.Context(), keyed(t, a.ID, string(state), "one")))
			same(t, "replayed", true, again.Replayed)
			same(t, "state", state, again.Job.State)
		}
	})
	t.Run("before it looks at cap and balance", func(t *testing.T) {
		t.Parallel()
		a := pgtest.NewAccount(t, b.DB, 500)
		must[postgres.Admitted](t)(b.Admit(t.Context(), keyed(t, a.ID, "k", "one")))
		for range 4 {
			pgtest.Queued(t, b.DB, a.ID)
		}
		again := must[postgres.Admitted](t)(b.Admit(t.Context(), keyed(t, a.ID, "k", "one")))
		same(t, "replayed", true, again.Replayed)
		_, err := b.Admit(t.Context(), keyed(t, a.ID, "k", "two"))
		same(t, "another request under the key", fault.InvalidRequest, refused(t, err))
		_, err = b.Admit(t.Context(), keyed(t, a.ID, "new", "one"))
		same(t, "a new key", fault.TooManyJobs, refused(t, err))
	})
	t.Run("but not of another account", func(t *testing.T) {
		t.Parallel()
		for range 2 {
			a := pgtest.NewAccount(t, b.DB, 1000)
			admitted := must[postgres.Admitted](t)(b.Admit(t.Context(), keyed(t, a.ID, "k", "one")))
			same(t, "replayed", false, admitted.Replayed)
		}
	})
	t.Run("and says whether it was ever published", func(t *testing.T) {
		t.Parallel()
		a := pgtest.NewAccount(t, b.DB, 1000)
		first := must[postgres.Admitted](t)(b.Admit(t.Context(), keyed(t, a.ID, "k", "one")))
		again := must[postgres.Admitted](t)(b.Admit(t.Context(), keyed(t, a.ID, "k", "one")))
		same(t, "enqueued", false, again.Enqueued)
		must[bool](t)(b.Enqueued(t.Context(), first.Job.ID))
		again = must[postgres.Admitted](t)(b.Admit(t.Context(), keyed(t, a.ID, "k", "one")))
		same(t, "enqueued", true, again.Enqueued)
	})
}

func TestAdmit_releases_a_key(t *testing.T) {
	t.Parallel()
	b := open(t, 4)
	for _, row := range []struct {
		name     string
		release  func(t *testing.T, id job.ID)
		replayed bool
	}{
		{"not within 24 hours", func(t *testing.T, id job.ID) {
			b.exec(t, `update jobs set created_at = created_at - interval '23 hours 59 minutes' where id = $1`, id)
		}, true},
		{"after 24 hours", func(t *testing.T, id job.ID) {
			b.exec(t, `update jobs set created_at = created_at - interval '24 hours' where id = $1`, id)
		}, false},
		{"of a cancelled job", func(t *testing.T, id job.ID) { must[bool](t)(b.Cancel(t.Context(), id, "no")) }, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a := pgtest.NewAccount(t, b.DB, 1000)
			first := must[postgres.Admitted](t)(b.Admit(t.Context(), keyed(t, a.ID, "k", "one")))
			row.release(t, first.Job.ID)
			must[bool](t)(b.Enqueued(t.Context(), first.Job.ID))
			again := must[postgres.Admitted](t)(b.Admit(t.Context(), keyed(t, a.ID, "k", "one")))
			same(t, "replayed", row.replayed, again.Replayed)
			same(t, "the same job", row.replayed, first.Job.ID == again.Job.ID)
			must[bool](t)(b.Sweep(t.Context(), first.Job.ID, hour, "it only looks old"))
		})
	}

	t.Run("of a refused request", func(t *testing.T) {
		t.Parallel()
		a := pgtest.NewAccount(t, b.DB, 50)
		_, err := b.Admit(t.Context(), keyed(t, a.ID, "k", "one"))
		same(t, "refusal", fault.InsufficientBalance, refused(t, err))
		must[postgres.LedgerRow](t)(b.Credit(t.Context(), a.ID, 100, ""))
		admitted := must[postgres.Admitted](t)(b.Admit(t.Context(), keyed(t, a.ID, "k", "two")))
		same(t, "replayed", false, admitted.Replayed)
	})
}

// Requests with one key at once: exactly one makes a job, all others get it.
// The account has one Point's worth left for some keys, so that losers meet an
// empty account and must still find the winner's job.
func TestAdmit_makes_one_job_of_many_requests_with_one_key_at_once(t *testing.T) {
	t.Parallel()
	b := open(t, 32)
	for round := range 30 {
		balance := point.Amount(100)
		if round%2 == 0 {
			balance = 1000
		}
		a := pgtest.NewAccount(t, b.DB, balance)
		var made atomic.Int64
		ids := make(chan job.ID, 32)
		together(32, func(int) {
			admitted, err := b.Admit(t.Context(), keyed(t, a.ID, "k", "one"))
			if err != nil {
				t.Errorf("refused: %v", err)
				return
			}
			if !admitted.Replayed {
				made.Add(1)
			}
			same(t, "balance", balance-100, admitted.Balance)
			ids <- admitted.Job.ID
		})
		close(ids)
		distinct := map[job.ID]bool{}
		for id := range ids {
			distinct[id] = true
		}
		same(t, "jobs made", int64(1), made.Load())
		same(t, "distinct jobs", 1, len(distinct))
		same(t, "account", purse{balance - 100, 1}, b.purse(t, a.ID))
	}
}

// Cancelling a job while its key is used again must end with at most one
// running job, and never with an answer that names a job of another request.
func TestAdmit_and_Cancel_race_for_a_key(t *testing.T) {
	t.Parallel()
	b := open(t, 8)
	for range 50 {
		a := pgtest.NewAccount(t, b.DB, 1000)
		first := must[postgres.Admitted](t)(b.Admit(t.Context(), keyed(t, a.ID, "k", "one")))
		together(4, func(i int) {
			if i == 0 {
				must[bool](t)(b.Cancel(t.Context(), first.Job.ID, "no"))
				return
			}
			must[postgres.Admitted](t)(b.Admit(t.Context(), keyed(t, a.ID, "k", "one")))
		})
		if running := b.purse(t, a.ID).Running; running > 1 {
			t.Fatalf("%d jobs of one key run", running)
		}
	}
}
