package postgres_test

import (
	"sync/atomic"
	"testing"

	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/testkit/pgtest"
)

// Three that want to end a job at the same moment: exactly one does, and the
// money follows the one that did.
func TestEnds_of_a_job_at_the_same_moment_have_one_winner(t *testing.T) {
	t.Parallel()
	type rival struct {
		name string
		end  func(b books, id job.ID, fence int64) (bool, error)
	}
	complete := rival{"complete", func(b books, id job.ID, fence int64) (bool, error) {
		return b.Complete(ctx(), id, fence, result(id))
	}}
	fail := rival{"fail", func(b books, id job.ID, fence int64) (bool, error) { return b.Fail(ctx(), id, fence, "failed") }}
	sweep := rival{"sweep", func(b books, id job.ID, _ int64) (bool, error) { return b.Sweep(ctx(), id, 0, "swept") }}
	cancel := rival{"cancel", func(b books, id job.ID, _ int64) (bool, error) { return b.Cancel(ctx(), id, "cancelled") }}
	claim := rival{"claim", func(b books, id job.ID, _ int64) (bool, error) {
		_, v, err := b.Claim(ctx(), id, hour)
		return v == postgres.Claimed, err
	}}
	confirm := rival{"confirm", func(b books, id job.ID, _ int64) (bool, error) { return b.Enqueued(ctx(), id) }}
	for _, row := range []struct {
		name    string
		claimed bool
		rivals  []rival
		winners func(won map[string]bool, state job.State) bool
	}{
		{"of a processing job", true, []rival{complete, fail, sweep}, func(won map[string]bool, state job.State) bool {
			if won["complete"] {
				return state == job.Completed && !won["sweep"] && !won["fail"]
			}
			return state == job.Failed // Fail also says yes when the sweep ended the claim it would have ended
		}},
		{"of a queued job", false, []rival{claim, cancel, confirm}, func(won map[string]bool, state job.State) bool {
			// Cancelled: nobody works on it and nobody was told. Or it stands,
			// and cancel said so. A claim may only lose against the cancel.
			if won["cancel"] {
				return state == job.Failed && !won["claim"] && !won["confirm"]
			}
			return state == job.Processing && won["claim"] && won["confirm"]
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := open(t, 16)
			a := pgtest.NewAccount(t, b.DB, 1_000_000)
			tally := map[string]int{}
			for range 150 {
				j := pgtest.Queued(t, b.DB, a.ID)
				if row.claimed {
					j = b.claim(t, j.ID, hour)
				}
				won := make([]bool, len(row.rivals))
				together(len(row.rivals), func(i int) {
					done, err := row.rivals[i].end(b, j.ID, j.Fence)
					if err != nil {
						t.Errorf("%s: %v", row.rivals[i].name, err)
					}
					won[i] = done
				})
				names := map[string]bool{}
				for i, w := range won {
					if w {
						names[row.rivals[i].name] = true
						tally[row.rivals[i].name]++
					}
				}
				state := b.row(t, j.ID).State
				if !row.winners(names, state) {
					t.Fatalf("the job is %s, and these say they did it: %v", state, names)
				}
				if !state.Final() {
					must[bool](t)(b.Sweep(t.Context(), j.ID, 0, "cleared"))
				}
			}
			t.Log("winners", tally)
			same(t, "running", 0, b.purse(t, a.ID).Running)
		})
	}
}

// Two workers that claim the same lapsed job: one gets it.
func TestClaim_gives_a_job_to_one_of_many_workers(t *testing.T) {
	t.Parallel()
	b := open(t, 16)
	a := pgtest.NewAccount(t, b.DB, 1_000_000)
	for round := range 40 {
		j := pgtest.Queued(t, b.DB, a.ID)
		if round%2 == 0 {
			b.claim(t, j.ID, over)
		}
		var claims atomic.Int64
		together(16, func(int) {
			_, verdict, err := b.Claim(ctx(), j.ID, hour)
			if err != nil {
				t.Error(err)
			}
			if verdict == postgres.Claimed {
				claims.Add(1)
			}
		})
		same(t, "claims", int64(1), claims.Load())
		must[bool](t)(b.Sweep(t.Context(), j.ID, 0, "cleared"))
	}
}

// The statements lock the job's row and then the account's. With many jobs of
// one account ending and starting at once, an account row that was read before
// the lock would lose an update, and another lock order would deadlock.
func TestRefunds_of_one_account_at_once_are_all_paid(t *testing.T) {
	t.Parallel()
	b := open(t, 32)
	a := pgtest.NewAccount(t, b.DB, 10_000)
	together(32, func(i int) {
		for n := range 20 {
			admitted, err := b.Admit(ctx(), keyed(t, a.ID, "", ""))
			if err != nil {
				if _, err := b.Credit(ctx(), a.ID, 1, ""); err != nil {
					t.Error(err)
				}
				continue
			}
			id := admitted.Job.ID
			if (i+n)%2 == 0 {
				if _, err := b.Cancel(ctx(), id, "no"); err != nil {
					t.Error(err)
				}
				continue
			}
			j, _, err := b.Claim(ctx(), id, hour)
			if err != nil {
				t.Error(err)
			}
			if _, err := b.Fail(ctx(), id, j.Fence, "no"); err != nil {
				t.Error(err)
			}
		}
	})
	credits := b.number(t, `select sum(amount) from ledger where account_id = $1 and kind = 'credit'`, a.ID)
	same(t, "account", purse{point.Amount(credits), 0}, b.purse(t, a.ID))
	same(t, "deadlocks", int64(0), b.number(t, `select deadlocks from pg_stat_database where datname = current_database()`))
}

func TestCreateKey_holds_the_cap_against_16_at_once(t *testing.T) {
	t.Parallel()
	b := open(t, 16)
	for range 10 {
		a := pgtest.NewAccount(t, b.DB, 0)
		var made atomic.Int64
		together(16, func(int) {
			if _, err := b.CreateKey(ctx(), a.ID, newKey(), ""); err == nil {
				made.Add(1)
			}
		})
		same(t, "keys", int64(job.MaxKeys), made.Load())
	}
}
