package postgres_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/testkit/pgtest"
)

// The commands are those of the README.
func TestBackup_restores_the_books_and_the_jobs(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	a := pgtest.NewAccount(t, b.DB, point.Point)
	pgtest.NewKey(t, b.DB, a.ID)
	completed, failed := pgtest.Claimed(t, b.DB, a.ID), pgtest.Claimed(t, b.DB, a.ID)
	must[bool](t)(b.Complete(t.Context(), completed.ID, completed.Fence, result(completed.ID)))
	must[bool](t)(b.Fail(t.Context(), failed.ID, failed.Fence, "no"))
	queued, running := pgtest.Queued(t, b.DB, a.ID), pgtest.Claimed(t, b.DB, a.ID)
	must[bool](t)(b.Enqueued(t.Context(), queued.ID))
	before := must[[]postgres.LedgerRow](t)(b.Ledger(t.Context(), a.ID))

	dump := filepath.Join(t.TempDir(), "pictor.dump")
	b.program(t, "pg_dump", "--format=custom", "--file="+dump, b.url)
	// What happens after the backup is lost with the server.
	must[bool](t)(b.Fail(t.Context(), running.ID, running.Fence, "no"))

	url := pgtest.Empty(t)
	b.program(t, "pg_restore", "--no-owner", "--exit-on-error", "--dbname="+url, dump)
	restored := books{pgtest.Open(t, url), b.raw, url}
	if err := restored.Migrated(t.Context()); err != nil {
		t.Error(err)
	}
	restored.hold(t)
	same(t, "ledger", before, must[[]postgres.LedgerRow](t)(restored.Ledger(t.Context(), a.ID)))
	same(t, "account", purse{600 + 100, 2}, restored.purse(t, a.ID))
	same(t, "result", job.Completed, restored.row(t, completed.ID).State)

	// The new queue is empty: the sweeper fills it from these rows.
	same(t, "job that runs", job.Processing, restored.row(t, running.ID).State)
	again := restored.claim(t, queued.ID, hour)
	must[bool](t)(restored.Complete(t.Context(), again.ID, again.Fence, result(again.ID)))
	restored.hold(t)
}

// program runs one of Postgres' own, of the server's version.
func (b books) program(t *testing.T, name string, args ...string) {
	t.Helper()
	var folder string
	if err := b.raw.QueryRowContext(t.Context(), `select setting from pg_config where name = 'BINDIR'`).Scan(&folder); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), filepath.Join(folder, name), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}
