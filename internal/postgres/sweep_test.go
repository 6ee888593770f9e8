package postgres_test

import (
	"testing"
	"time"

	"pictor/internal/fault"
	"pictor/internal/job"
	"pictor/internal/testkit/pgtest"
)

// age makes the job's times older by d, as if it had been left alone for d.
func (b books) age(t *testing.T, id job.ID, d time.Duration) {
	t.Helper()
	b.exec(t, `
		update jobs set created_at = created_at - $2::interval, updated_at = updated_at - $2::interval,
			enqueued_at = enqueued_at - $2::interval, heartbeat_at = heartbeat_at - $2::interval,
			lease_until = lease_until - $2::interval, finished_at = finished_at - $2::interval
		where id = $1`, id, d.String())
}

func ids(jobs []job.Job) (ids []job.ID) {
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

func TestOrphans_are_the_jobs_nobody_was_told_of(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	a := pgtest.NewAccount(t, b.DB, 1000)
	lost, young := pgtest.Queued(t, b.DB, a.ID), pgtest.Queued(t, b.DB, a.ID)
	confirmed, claimed := pgtest.Queued(t, b.DB, a.ID), pgtest.Claimed(t, b.DB, a.ID)
	must[bool](t)(b.Enqueued(t.Context(), confirmed.ID))
	for _, j := range []job.Job{lost, confirmed, claimed} {
		b.age(t, j.ID, 11*time.Second)
	}
	found := must[[]job.ID](t)(b.Orphans(t.Context(), 10*time.Second, 10))
	same(t, "orphans", []job.ID{lost.ID}, found)
	same(t, "cancelled", true, must[bool](t)(b.Cancel(t.Context(), lost.ID, "no")))
	same(t, "left", []job.ID(nil), must[[]job.ID](t)(b.Orphans(t.Context(), 10*time.Second, 10)))
	same(t, "account", purse{700, 3}, b.purse(t, a.ID))

	// Listed as an orphan, confirmed a moment later: a client has its 202 now.
	b.age(t, young.ID, 11*time.Second)
	same(t, "orphans", []job.ID{young.ID}, must[[]job.ID](t)(b.Orphans(t.Context(), 10*time.Second, 10)))
	same(t, "confirmed", true, must[bool](t)(b.Enqueued(t.Context(), young.ID)))
	same(t, "cancelled", false, must[bool](t)(b.Cancel(t.Context(), young.ID, "no")))
}

func TestLost_lists_jobs_whose_message_may_be_gone(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	accounts := []int64{pgtest.NewAccount(t, b.DB, 1000).ID, pgtest.NewAccount(t, b.DB, 1000).ID}
	const after = 30 * time.Second
	queued := pgtest.Queued(t, b.DB, accounts[0])
	must[bool](t)(b.Enqueued(t.Context(), queued.ID))
	b.age(t, queued.ID, after+time.Second)

	dead := b.claim(t, pgtest.Queued(t, b.DB, accounts[0]).ID, 30*time.Second)
	b.age(t, dead.ID, 41*time.Second)
	back := b.claim(t, pgtest.Queued(t, b.DB, accounts[0]).ID, hour)
	must[bool](t)(b.GiveBack(t.Context(), back.ID, back.Fence))
	b.age(t, back.ID, after+time.Second)

	// Not these: fresh, alive, lease only just over, given back just now, never
	// confirmed (an orphan), final.
	fresh := pgtest.Queued(t, b.DB, accounts[1])
	must[bool](t)(b.Enqueued(t.Context(), fresh.ID))
	alive := b.claim(t, pgtest.Queued(t, b.DB, accounts[1]).ID, hour)
	b.age(t, alive.ID, after+time.Second)
	over := b.claim(t, pgtest.Queued(t, b.DB, accounts[1]).ID, 30*time.Second)
	b.age(t, over.ID, 39*time.Second)
	orphan := pgtest.Queued(t, b.DB, accounts[1])
	b.age(t, orphan.ID, hour)
	must[bool](t)(b.Cancel(t.Context(), orphan.ID, "no"))

	now := must[time.Time](t)(b.Now(t.Context()))
	find := func(task job.Task) []job.Job {
		return must[[]job.Job](t)(b.Lost(t.Context(), task, now.Add(-after), now.Add(-after/3), 10))
	}
	lost := find(job.RemoveBG)
	same(t, "lost", map[job.ID]bool{queued.ID: true, dead.ID: true, back.ID: true}, set(ids(lost)))
	for _, j := range lost {
		if err := b.Republished(t.Context(), j.ID); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "left", 0, len(find(job.RemoveBG)))
	same(t, "of another task", 0, len(find(job.Upscale2x)))
}

func set(ids []job.ID) map[job.ID]bool {
	all := map[job.ID]bool{}
	for _, id := range ids {
		all[id] = true
	}
	return all
}

func TestStuck_finds_jobs_without_a_sign_of_life(t *testing.T) {
	t.Parallel()
	const after = 5 * time.Minute
	for _, row := range []struct {
		name    string
		make    func(t *testing.T, b books, account int64) job.ID
		workers []job.Task // alive
		stuck   bool
	}{
		{"queued, nobody there", func(t *testing.T, b books, account int64) job.ID {
			id := pgtest.Queued(t, b.DB, account).ID
			b.age(t, id, after+time.Second)
			return id
		}, nil, true},
		{"queued, only workers of other tasks", func(t *testing.T, b books, account int64) job.ID {
			id := pgtest.Queued(t, b.DB, account).ID
			b.age(t, id, after+time.Second)
			return id
		}, []job.Task{job.Upscale2x, job.Upscale4x}, true},
		{"queued for an hour behind others, its workers alive", func(t *testing.T, b books, account int64) job.ID {
			id := pgtest.Queued(t, b.DB, account).ID
			b.age(t, id, hour)
			return id
		}, []job.Task{job.RemoveBG}, false},
		{"queued, nobody there, but young", func(t *testing.T, b books, account int64) job.ID {
			id := pgtest.Queued(t, b.DB, account).ID
			b.age(t, id, after-10*time.Second)
			return id
		}, nil, false},
		{"processing, its worker silent", func(t *testing.T, b books, account int64) job.ID {
			id := pgtest.Claimed(t, b.DB, account).ID
			b.age(t, id, after+time.Second)
			return id
		}, []job.Task{job.RemoveBG}, true},
		{"processing for an hour, its worker slow but alive", func(t *testing.T, b books, account int64) job.ID {
			j := pgtest.Claimed(t, b.DB, account)
			b.age(t, j.ID, hour)
			must[bool](t)(b.Progress(t.Context(), j.ID, j.Fence, 10, "", time.Minute))
			return j.ID
		}, nil, false},
		{"given back, its workers alive", func(t *testing.T, b books, account int64) job.ID {
			j := pgtest.Claimed(t, b.DB, account)
			must[bool](t)(b.GiveBack(t.Context(), j.ID, j.Fence))
			b.age(t, j.ID, hour)
			return j.ID
		}, []job.Task{job.RemoveBG}, false},
		{"given back, nobody there", func(t *testing.T, b books, account int64) job.ID {
			j := pgtest.Claimed(t, b.DB, account)
			must[bool](t)(b.GiveBack(t.Context(), j.ID, j.Fence))
			b.age(t, j.ID, after+time.Second)
			return j.ID
		}, nil, true},
		{"poisoned, the last lease over", func(t *testing.T, b books, account int64) job.ID {
			id := pgtest.Queued(t, b.DB, account).ID
			for range job.MaxClaims {
				b.claim(t, id, over)
			}
			return id
		}, []job.Task{job.RemoveBG}, true},
		{"twice claimed, the last lease over", func(t *testing.T, b books, account int64) job.ID {
			id := pgtest.Queued(t, b.DB, account).ID
			b.claim(t, id, over)
			return b.claim(t, id, over).ID
		}, nil, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			b := openAny(t, 2)
			a := pgtest.NewAccount(t, b.DB, 1000)
			if len(row.workers) > 0 {
				if err := b.Alive(t.Context(), "worker", row.workers); err != nil {
					t.Fatal(err)
				}
			}
			id := row.make(t, b, a.ID)
			var want []job.ID
			if row.stuck {
				want = []job.ID{id}
			}
			same(t, "stuck", want, must[[]job.ID](t)(b.Stuck(t.Context(), after, 10)))
			same(t, "swept", row.stuck, must[bool](t)(b.Sweep(t.Context(), id, after, "stuck")))
			same(t, "account is refunded", row.stuck, b.purse(t, a.ID) == purse{1000, 0})
			b.hold(t)
		})
	}
}

func TestAlive_forgets_workers_after_a_day(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	for _, worker := range []string{"old", "new", "new"} {
		if err := b.Alive(t.Context(), worker, job.Tasks()); err != nil {
			t.Fatal(err)
		}
		b.exec(t, `update workers set seen_at = seen_at - interval '25 hours' where id = 'old'`)
	}
	same(t, "workers", int64(1), b.number(t, `select count(*) from workers`))
}

func TestExpire_takes_old_results_off_the_shelf(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	a := pgtest.NewAccount(t, b.DB, 1000)
	finish := func() job.Job {
		j := pgtest.Claimed(t, b.DB, a.ID)
		must[bool](t)(b.Complete(t.Context(), j.ID, j.Fence, result(j.ID)))
		return j
	}
	old, young := finish(), finish()
	failed := pgtest.Claimed(t, b.DB, a.ID)
	must[bool](t)(b.Fail(t.Context(), failed.ID, failed.Fence, "no"))
	b.age(t, old.ID, 25*hour)
	b.age(t, failed.ID, 25*hour)

	same(t, "before", old.ID, must[job.Job](t)(b.JobByToken(t.Context(), result(old.ID).Token)).ID)
	expired := must[[]job.Job](t)(b.Expire(t.Context(), 24*hour, 10))
	same(t, "expired", []job.ID{old.ID}, ids(expired))
	same(t, "its object", old.ID.ResultKey(old.Fence), expired[0].ResultKey())
	_, err := b.JobByToken(t.Context(), result(old.ID).Token)
	same(t, "after", fault.NotFound, refused(t, err))
	must[job.Job](t)(b.JobByToken(t.Context(), result(young.ID).Token))
	same(t, "again", 0, len(must[[]job.Job](t)(b.Expire(t.Context(), 24*hour, 10))))
}

func TestInputs_of_finished_jobs_are_listed_until_deleted(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	a := pgtest.NewAccount(t, b.DB, 1000)
	done, busy := pgtest.Claimed(t, b.DB, a.ID), pgtest.Claimed(t, b.DB, a.ID)
	must[bool](t)(b.Fail(t.Context(), done.ID, done.Fence, "no"))
	same(t, "inputs", []job.ID{done.ID}, must[[]job.ID](t)(b.Inputs(t.Context(), 10)))
	for _, j := range []job.Job{done, busy} {
		if err := b.InputDeleted(t.Context(), j.ID); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "inputs", 0, len(must[[]job.ID](t)(b.Inputs(t.Context(), 10))))
	same(t, "the input of a finished job", false, must[bool](t)(b.Owns(t.Context(), done.ID, done.ID.InputKey())))
	same(t, "the input of a running job", true, must[bool](t)(b.Owns(t.Context(), busy.ID, busy.ID.InputKey())))
}

func TestOwns_tells_objects_from_garbage(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	a := pgtest.NewAccount(t, b.DB, 1000)
	owns := func(id job.ID, key string) bool { return must[bool](t)(b.Owns(t.Context(), id, key)) }
	id := pgtest.Queued(t, b.DB, a.ID).ID
	same(t, "a result nobody claimed for", false, owns(id, id.ResultKey(0)))
	b.claim(t, id, over)
	b.claim(t, id, hour)
	same(t, "the result of a claim that was lost", false, owns(id, id.ResultKey(1)))
	same(t, "the result that is being written", true, owns(id, id.ResultKey(2)))
	must[bool](t)(b.Complete(t.Context(), id, 2, result(id)))
	same(t, "the result", true, owns(id, id.ResultKey(2)))
	same(t, "the input of a finished job, not yet deleted", true, owns(id, id.InputKey()))
	same(t, "something else below its name", false, owns(id, "out/"+string(id)+"/2/x"))
	b.age(t, id, 25*hour)
	must[[]job.Job](t)(b.Expire(t.Context(), 24*hour, 10))
	same(t, "the expired result", false, owns(id, id.ResultKey(2)))
	same(t, "an input of no job", false, owns(pgtest.NewID(t), "in/x"))
	same(t, "a name that is no job", false, owns("nonsense", "in/nonsense"))
}

func TestTrySweep_gives_one_process_the_turn(t *testing.T) {
	t.Parallel()
	b := open(t, 4)
	try := func() (bool, func()) {
		turn, release, err := b.TrySweep(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return turn, release
	}
	first, release := try()
	second, releaseNothing := try()
	same(t, "turns", []bool{true, false}, []bool{first, second})
	releaseNothing()
	third, _ := try()
	same(t, "after a release by one that has no turn", false, third)
	release()
	fourth, _ := try()
	same(t, "after the release", true, fourth)
	b.exec(t, `update turns set held_until = now() - interval '1 second'`)
	fifth, _ := try()
	same(t, "after its holder died", true, fifth)
}
