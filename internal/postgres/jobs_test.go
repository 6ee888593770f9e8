package postgres_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/testkit/pgtest"
)

func TestJobs_are_read_many_at_a_time(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	account := pgtest.NewAccount(t, db, 10*point.Point).ID
	queued, claimed := pgtest.Queued(t, db, account), pgtest.Claimed(t, db, account)
	completed, failed := pgtest.Claimed(t, db, account), pgtest.Claimed(t, db, account)
	if held, err := db.Complete(t.Context(), completed.ID, completed.Fence, postgres.Result{Type: job.PNG, Size: 1, Token: "x"}); err != nil || !held {
		t.Fatal(held, err)
	}
	if held, err := db.Fail(t.Context(), failed.ID, failed.Fence, "It failed."); err != nil || !held {
		t.Fatal(held, err)
	}
	all := []job.ID{queued.ID, claimed.ID, completed.ID, failed.ID}
	asked := slices.Concat(all, []job.ID{pgtest.NewID(t), queued.ID}) // one unknown, one twice

	jobs, err := db.JobsByID(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(all)), slices.Sorted(maps.Keys(jobs))); diff != "" {
		t.Errorf("the jobs that were read: %s", diff)
	}
	for id, got := range jobs {
		want, err := db.Job(t.Context(), account, id)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, *got); diff != "" {
			t.Errorf("a job read with others (+) and alone (-): %s", diff)
		}
	}

	ended, err := db.Ended(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ended)
	if diff := cmp.Diff(slices.Sorted(slices.Values([]job.ID{completed.ID, failed.ID})), ended); diff != "" {
		t.Errorf("the jobs that have ended: %s", diff)
	}
}
