package postgres_test

import (
	"database/sql"
	"testing"

	"pictor/internal/testkit/pgtest"
)

func TestMigrated(t *testing.T) {
	t.Parallel()
	t.Run("an empty database lacks everything", func(t *testing.T) {
		t.Parallel()
		if err := pgtest.Open(t, pgtest.Empty(t)).Migrated(t.Context()); err == nil {
			t.Error("it lacks nothing")
		}
	})
	t.Run("one migration less is noticed, one more is not", func(t *testing.T) {
		t.Parallel()
		url := pgtest.URL(t)
		db := pgtest.Open(t, url)
		if err := db.Migrated(t.Context()); err != nil {
			t.Fatal(err)
		}
		change(t, url, `insert into goose_db_version (version_id, is_applied) values (999999, true)`)
		if err := db.Migrated(t.Context()); err != nil {
			t.Errorf("a database that is ahead: %v", err)
		}
		change(t, url, `delete from goose_db_version where version_id = 1`)
		if err := db.Migrated(t.Context()); err == nil {
			t.Error("a missing migration is not noticed")
		}
	})
}

func change(t *testing.T, url, statement string) {
	t.Helper()
	raw, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}
