package postgres_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"pictor/internal/job"
	"pictor/internal/postgres"
	"pictor/internal/testkit/pgtest"
)

func TestTallies_count_jobs_and_Point(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a := pgtest.NewAccount(t, db, 10_000)
	pgtest.Queued(t, db, a.ID)
	pgtest.Claimed(t, db, a.ID)
	done, failed := pgtest.Claimed(t, db, a.ID), pgtest.Claimed(t, db, a.ID)
	if _, err := db.Complete(t.Context(), done.ID, done.Fence, postgres.Result{Type: job.PNG, Size: 1, Token: string(done.ID)}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Fail(t.Context(), failed.ID, failed.Fence, "It failed."); err != nil {
		t.Fatal(err)
	}
	unordered := cmpopts.SortSlices(func(a, b postgres.Tally) bool { return a.State < b.State })
	unfinished, err := db.Unfinished(t.Context())
	if diff := cmp.Diff([]postgres.Tally{{job.RemoveBG, job.Queued, 1}, {job.RemoveBG, job.Processing, 1}}, unfinished, unordered); diff != "" || err != nil {
		t.Error(diff, err)
	}
	finished, err := db.Finished(t.Context())
	if diff := cmp.Diff([]postgres.Tally{{job.RemoveBG, job.Completed, 1}, {job.RemoveBG, job.Failed, 1}}, finished, unordered); diff != "" || err != nil {
		t.Error(diff, err)
	}
	movements, err := db.Movements(t.Context())
	want := []postgres.Movement{{"credit", 10_000}, {"charge", -400}, {"refund", 100}}
	if diff := cmp.Diff(want, movements, cmpopts.SortSlices(func(a, b postgres.Movement) bool { return a.Kind < b.Kind })); diff != "" || err != nil {
		t.Error(diff, err)
	}
}
