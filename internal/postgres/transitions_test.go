package postgres_test

import (
	"slices"
	"testing"

	"pictor/internal/job"
	"pictor/internal/postgres"
	"pictor/internal/testkit/pgtest"
)

// situation is a state together with what the guards look at besides it, and
// the transitions that the guards then allow.
type situation struct {
	name   string
	state  job.State
	make   func(t *testing.T, b books, account int64) job.Job
	allows []job.Transition
}

// leaseOver is the situation that a claim counts as a lapse.
const leaseOver = "processing, lease over"

func situations() []situation {
	queued := func(t *testing.T, b books, account int64) job.Job { return pgtest.Queued(t, b.DB, account) }
	claimed := func(leases ...int) func(t *testing.T, b books, account int64) job.Job {
		return func(t *testing.T, b books, account int64) job.Job {
			j := pgtest.Queued(t, b.DB, account)
			for _, l := range leases {
				lease := hour
				if l == 0 {
					lease = over
				}
				j = b.claim(t, j.ID, lease)
			}
			return j
		}
	}
	return []situation{
		{"queued, publish not confirmed", job.Queued, queued, []job.Transition{job.Claim, job.Cancel, job.Sweep}},
		{"queued, publish confirmed", job.Queued, func(t *testing.T, b books, account int64) job.Job {
			j := queued(t, b, account)
			must[bool](t)(b.Enqueued(t.Context(), j.ID))
			return j
		}, []job.Transition{job.Claim, job.Sweep}},
		{"processing", job.Processing, claimed(1), []job.Transition{job.Progress, job.Complete, job.Fail, job.Sweep}},
		{leaseOver, job.Processing, claimed(0),
			[]job.Transition{job.Claim, job.Progress, job.Complete, job.Fail, job.Sweep}},
		{"processing, given back", job.Processing, func(t *testing.T, b books, account int64) job.Job {
			j := claimed(1)(t, b, account)
			must[bool](t)(b.GiveBack(t.Context(), j.ID, j.Fence))
			return j
		}, []job.Transition{job.Claim, job.Complete, job.Fail, job.Sweep}},
		{"processing, for the last time", job.Processing, claimed(0, 0, 1),
			[]job.Transition{job.Progress, job.Complete, job.Fail, job.Sweep}},
		{"completed", job.Completed, func(t *testing.T, b books, account int64) job.Job {
			j := claimed(1)(t, b, account)
			must[bool](t)(b.Complete(t.Context(), j.ID, j.Fence, result(j.ID)))
			return j
		}, nil},
		{"failed by its worker", job.Failed, func(t *testing.T, b books, account int64) job.Job {
			j := claimed(1)(t, b, account)
			must[bool](t)(b.Fail(t.Context(), j.ID, j.Fence, "no"))
			return j
		}, nil},
		{"cancelled", job.Failed, func(t *testing.T, b books, account int64) job.Job {
			j := queued(t, b, account)
			must[bool](t)(b.Cancel(t.Context(), j.ID, "no"))
			return j
		}, nil},
	}
}

// apply tries a transition as the holder of the fence.
func (b books) apply(t *testing.T, tr job.Transition, id job.ID, fence int64) (changed bool) {
	t.Helper()
	var err error
	switch tr {
	case job.Claim:
		var v postgres.Verdict
		_, v, err = b.Claim(t.Context(), id, hour)
		changed = v == postgres.Claimed
	case job.Progress:
		changed, err = b.Progress(t.Context(), id, fence, 50, "", hour)
	case job.Complete:
		changed, err = b.Complete(t.Context(), id, fence, result(id))
	case job.Fail:
		changed, err = b.Fail(t.Context(), id, fence, "failed")
	case job.Cancel:
		changed, err = b.Cancel(t.Context(), id, "cancelled")
	case job.Sweep:
		changed, err = b.Sweep(t.Context(), id, 0, "swept")
	default:
		t.Fatalf("the test does not know %s", tr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// The guards in SQL and the table in internal/job are two statements of the
// same machine: every situation meets every transition, and both must agree.
func TestTransitions_agree_with_the_table_of_the_states(t *testing.T) {
	t.Parallel()
	b := open(t, 8)
	for _, s := range situations() {
		for _, tr := range job.Transitions() {
			t.Run(s.name+"/"+string(tr), func(t *testing.T) {
				t.Parallel()
				a := pgtest.NewAccount(t, b.DB, 1000)
				j := s.make(t, b, a.ID)
				before, purseBefore := b.row(t, j.ID), b.purse(t, a.ID)
				if before.State != s.state {
					t.Fatalf("the job is %s", before.State)
				}
				next, legal := s.state.Next(tr)
				allowed := slices.Contains(s.allows, tr)
				if allowed && !legal {
					t.Fatalf("the guards allow what job.Next forbids")
				}

				changed := b.apply(t, tr, j.ID, j.Fence)

				after, purseAfter := b.row(t, j.ID), b.purse(t, a.ID)
				if !allowed {
					// A verdict of true is right where the end it asked for is
					// the one the job has: the answer to a lost answer.
					if changed && !isEnd(tr, after) {
						t.Error("it says that it changed the job")
					}
					same(t, "job", before, after)
					same(t, "account", purseBefore, purseAfter)
					return
				}
				same(t, "changed", true, changed)
				wanted := expect(before, tr, next)
				if tr == job.Claim && s.name == leaseOver {
					wanted.Lapses++
				}
				same(t, "job", wanted, after)
				want := purseBefore
				if next.Final() {
					want.Running--
				}
				if next == job.Failed {
					want.Balance += before.Cost
				}
				same(t, "account", want, purseAfter)
			})
		}
	}
}

// isEnd says that the job ended the way the transition would have ended it.
func isEnd(tr job.Transition, j job.Job) bool {
	switch tr {
	case job.Complete:
		return j.State == job.Completed
	case job.Fail:
		return j.State == job.Failed
	case job.Cancel:
		return j.State == job.Failed && j.Fence == 0
	}
	return false
}

// expect is the job after a legal transition of apply.
func expect(j job.Job, tr job.Transition, next job.State) job.Job {
	j.State = next
	switch tr {
	case job.Claim:
		j.Fence++
		j.Message = "Working on the image."
	case job.Progress:
		j.Progress = max(j.Progress, 50)
	case job.Complete:
		r := result(j.ID)
		j.Progress, j.Message = 100, "The image is ready."
		j.ResultToken, j.ResultType, j.ResultSize = r.Token, r.Type, r.Size
	case job.Fail:
		j.Message, j.Refunded = "failed", true
	case job.Cancel:
		j.Message, j.Refunded = "cancelled", true
	case job.Sweep:
		j.Message, j.Refunded = "swept", true
	}
	return j
}

// For each arrow of the table there is a situation in which the guards let it
// through: a guard that is always false would pass the matrix.
func TestTransitions_can_all_happen(t *testing.T) {
	t.Parallel()
	for _, state := range job.States() {
		for _, tr := range job.Transitions() {
			if _, legal := state.Next(tr); !legal {
				continue
			}
			if !slices.ContainsFunc(situations(), func(s situation) bool {
				return s.state == state && slices.Contains(s.allows, tr)
			}) {
				t.Errorf("no situation lets %s through from %s", tr, state)
			}
		}
	}
}

func TestTransitions_under_an_old_fence_change_nothing(t *testing.T) {
	t.Parallel()
	b := open(t, 8)
	writes := []job.Transition{job.Progress, job.Complete, job.Fail}
	for _, tr := range writes {
		for _, fence := range []int64{0, 1, 3} {
			a := pgtest.NewAccount(t, b.DB, 1000)
			id := pgtest.Queued(t, b.DB, a.ID).ID
			b.claim(t, id, over)
			b.claim(t, id, hour) // fence 2
			before := b.row(t, id)
			if b.apply(t, tr, id, fence) {
				t.Errorf("%s under fence %d says that it changed the job", tr, fence)
			}
			given := must[bool](t)(b.GiveBack(t.Context(), id, fence))
			same(t, "given back", false, given)
			same(t, "job", before, b.row(t, id))
		}
	}
	// After the end, too: the worker that lost its lease comes last.
	a := pgtest.NewAccount(t, b.DB, 1000)
	id := pgtest.Queued(t, b.DB, a.ID).ID
	b.claim(t, id, over)
	b.claim(t, id, hour)
	must[bool](t)(b.Complete(t.Context(), id, 2, result(id)))
	for _, tr := range writes {
		if b.apply(t, tr, id, 1) {
			t.Errorf("%s under fence 1 says that it changed a completed job", tr)
		}
	}
}

func TestTransitions_of_an_unknown_job_change_nothing(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	id := pgtest.NewID(t)
	for _, tr := range job.Transitions() {
		if b.apply(t, tr, id, 1) {
			t.Errorf("%s says that it changed a job that does not exist", tr)
		}
	}
	_, verdict, err := b.Claim(t.Context(), id, hour)
	same(t, "verdict", postgres.Gone, verdict)
	same(t, "error", nil, err)
	same(t, "enqueued", false, must[bool](t)(b.Enqueued(t.Context(), id)))
}

// A worker whose connection died at the commit asks again; it must not take the
// repeat's "nothing changed" for a lost fence and throw its result away.
func TestTransitions_answer_a_repeat_like_the_first_time(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	a := pgtest.NewAccount(t, b.DB, 1000)
	for _, tr := range []job.Transition{job.Complete, job.Fail} {
		j := pgtest.Claimed(t, b.DB, a.ID)
		for range 2 {
			same(t, string(tr), true, b.apply(t, tr, j.ID, j.Fence))
		}
	}
	j := pgtest.Queued(t, b.DB, a.ID)
	for range 2 {
		same(t, "cancel", true, b.apply(t, job.Cancel, j.ID, 0))
		same(t, "enqueued", false, must[bool](t)(b.Enqueued(t.Context(), j.ID)))
	}
	same(t, "account", purse{900, 0}, b.purse(t, a.ID))
}

func TestClaim_tells_a_leased_job_from_one_that_is_gone(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	a := pgtest.NewAccount(t, b.DB, 1000)
	verdict := func(id job.ID) postgres.Verdict {
		_, v, err := b.Claim(t.Context(), id, hour)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	j := pgtest.Queued(t, b.DB, a.ID)
	same(t, "queued", postgres.Claimed, verdict(j.ID))
	same(t, "claimed", postgres.Leased, verdict(j.ID))
	must[bool](t)(b.Complete(t.Context(), j.ID, 1, result(j.ID)))
	same(t, "completed", postgres.Gone, verdict(j.ID))
	j = pgtest.Queued(t, b.DB, a.ID)
	must[bool](t)(b.Cancel(t.Context(), j.ID, "no"))
	same(t, "cancelled", postgres.Gone, verdict(j.ID))
}

func TestClaim_gives_up_a_picture_that_took_three_workers_with_it(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	a := pgtest.NewAccount(t, b.DB, 1000)
	j := pgtest.Queued(t, b.DB, a.ID)
	for range job.MaxClaims {
		j = b.claim(t, j.ID, over)
	}
	same(t, "fence", int64(job.MaxClaims), j.Fence)
	_, verdict, err := b.Claim(t.Context(), j.ID, hour)
	same(t, "error", nil, err)
	same(t, "verdict", postgres.GivenUp, verdict)
	same(t, "state", job.Failed, b.row(t, j.ID).State)
	same(t, "message", "The image was given up after 3 attempts. Its Point was given back.", b.row(t, j.ID).Message)
	same(t, "account", purse{1000, 0}, b.purse(t, a.ID))
}

// Workers that stop give their jobs back; a rolling restart of many workers
// must not use up the attempts of a picture.
func TestClaim_does_not_count_a_job_that_was_given_back(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	j := pgtest.Queued(t, b.DB, pgtest.NewAccount(t, b.DB, 1000).ID)
	for range 4 * job.MaxClaims {
		j = b.claim(t, j.ID, hour)
		same(t, "given back", true, must[bool](t)(b.GiveBack(t.Context(), j.ID, j.Fence)))
		same(t, "a late heartbeat", false, must[bool](t)(b.Progress(t.Context(), j.ID, j.Fence, 10, "", hour)))
	}
	for range job.MaxClaims {
		j = b.claim(t, j.ID, over)
	}
	_, verdict, err := b.Claim(t.Context(), j.ID, hour)
	same(t, "error", nil, err)
	same(t, "verdict", postgres.GivenUp, verdict)
}

// A picture that kills its worker took the pictures beside it along: after three
// such deaths all of them were given up. So the last attempt of every job is
// for a process that has nothing else to lose.
func TestClaimBeside_leaves_a_last_attempt_alone(t *testing.T) {
	t.Parallel()
	for name, lapse := range map[string]func(b books, j job.Job) (bool, error){
		"after dead workers": func(b books, j job.Job) (bool, error) {
			return b.Progress(t.Context(), j.ID, j.Fence, 0, "", over)
		},
		"after errors": func(b books, j job.Job) (bool, error) { return b.Lapse(t.Context(), j.ID, j.Fence) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t, 2)
			a := pgtest.NewAccount(t, b.DB, 1000)
			j := pgtest.Queued(t, b.DB, a.ID)
			beside := func() (postgres.Verdict, job.Job) {
				got, v, err := b.ClaimBeside(t.Context(), j.ID, hour)
				if err != nil {
					t.Fatal(err)
				}
				return v, got
			}
			for range job.MaxClaims - 1 {
				v, got := beside()
				same(t, "verdict", postgres.Claimed, v)
				same(t, "lapsed", true, must[bool](t)(lapse(b, got)))
			}
			for range 2 { // the same for a repeat, and for the next worker
				v, _ := beside()
				same(t, "verdict", postgres.Last, v)
			}
			// However long it waits for its turn, it is not stuck: workers live.
			if err := b.Alive(t.Context(), "worker", job.Tasks()); err != nil {
				t.Fatal(err)
			}
			b.age(t, j.ID, hour)
			same(t, "stuck", []job.ID(nil), must[[]job.ID](t)(b.Stuck(t.Context(), stuck, 10)))

			last := b.claim(t, j.ID, hour)
			same(t, "lapses", job.MaxClaims-1, last.Lapses)
			v, _ := beside()
			same(t, "verdict", postgres.Leased, v)
			same(t, "given back", true, must[bool](t)(b.GiveBack(t.Context(), j.ID, last.Fence)))
			last = b.claim(t, j.ID, over)
			v, _ = beside()
			same(t, "verdict", postgres.GivenUp, v)
			same(t, "account", purse{1000, 0}, b.purse(t, a.ID))
		})
	}
}

// The answer to Lapse may be lost and the statement repeated.
func TestLapse_counts_once(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	j := pgtest.Claimed(t, b.DB, pgtest.NewAccount(t, b.DB, 1000).ID)
	for range 2 {
		same(t, "given back", true, must[bool](t)(b.Lapse(t.Context(), j.ID, j.Fence)))
	}
	same(t, "lapses", 1, b.row(t, j.ID).Lapses)
	same(t, "under a lost fence", false, must[bool](t)(b.Lapse(t.Context(), j.ID, j.Fence+1)))
}

func TestProgress_never_falls(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	j := pgtest.Claimed(t, b.DB, pgtest.NewAccount(t, b.DB, 1000).ID)
	for _, row := range []struct {
		percent int
		message string
		want    int
	}{{10, "ten", 10}, {5, "", 10}, {70, "", 70}, {300, "", 100}, {-4, "", 100}} {
		must[bool](t)(b.Progress(t.Context(), j.ID, j.Fence, row.percent, row.message, hour))
		got := b.row(t, j.ID)
		same(t, "progress", row.want, got.Progress)
		same(t, "message", "ten", got.Message)
	}
	// A claim after a lost lease starts over, but a client never sees it.
	b.exec(t, `update jobs set lease_until = now() - interval '1 second' where id = $1`, j.ID)
	same(t, "progress", 100, b.claim(t, j.ID, hour).Progress)
}

// Heartbeats are the most frequent write. They stay on the page of the row and
// touch no index, which holds as long as no index names what they change.
func TestProgress_is_a_HOT_update(t *testing.T) {
	t.Parallel()
	b := openAny(t, 1) // closed before the end
	a := pgtest.NewAccount(t, b.DB, 1000)
	j := pgtest.Queued(t, b.DB, a.ID)
	must[bool](t)(b.Enqueued(t.Context(), j.ID))
	j = b.claim(t, j.ID, hour)
	for n := range 20 {
		must[bool](t)(b.Progress(t.Context(), j.ID, j.Fence, n, "", hour))
	}
	must[bool](t)(b.GiveBack(t.Context(), j.ID, j.Fence))
	if err := b.Republished(t.Context(), j.ID); err != nil {
		t.Fatal(err)
	}
	// The server writes its statistics when a connection ends, at the latest.
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for updates, hot := int64(0), int64(0); updates < 24; {
		updates = b.number(t, `select n_tup_upd from pg_stat_user_tables where relname = 'jobs'`)
		hot = b.number(t, `select n_tup_hot_upd from pg_stat_user_tables where relname = 'jobs'`)
		if updates == 24 && hot != updates {
			t.Errorf("%d of %d updates were HOT", hot, updates)
		}
	}
}
