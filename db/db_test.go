package db_test

import (
	"database/sql"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/db"
	"pictor/internal/testkit/pgtest"
)

func TestMigrate_makes_the_schema_once_however_often_it_runs(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	for _, m := range status(t, url) {
		if m.Applied || m.AppliedAt != nil {
			t.Errorf("%s is applied to an empty database", m.Name)
		}
	}
	for range 2 {
		if err := db.Migrate(t.Context(), url); err != nil {
			t.Fatal(err)
		}
	}
	all := status(t, url)
	for i, m := range all {
		if !m.Applied || m.AppliedAt == nil {
			t.Errorf("%s is not applied", m.Name)
		}
		if diff := cmp.Diff(int64(i+1), m.Version); diff != "" {
			t.Errorf("version of %s: %s", m.Name, diff)
		}
	}
	if len(all) == 0 {
		t.Error("there are no migrations")
	}
	versions, err := db.Versions()
	if err != nil || len(versions) != len(all) || versions[len(versions)-1] != all[len(all)-1].Version {
		t.Errorf("the versions are %v, %v", versions, err)
	}
}

// All processes of a deployment start at once, and each of them migrates.
func TestMigrate_may_run_in_many_processes_at_once(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := db.Migrate(t.Context(), url); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	conn, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var times int
	if err := conn.QueryRow(`select max(n) from (select count(*) n from goose_db_version group by version_id) v`).Scan(&times); err != nil {
		t.Fatal(err)
	}
	if times != 1 {
		t.Errorf("a migration was applied %d times", times)
	}
}

func TestMigrate_says_why_it_cannot(t *testing.T) {
	t.Parallel()
	if err := db.Migrate(t.Context(), "postgres://127.0.0.1:1/none?sslmode=disable"); err == nil {
		t.Error("it migrated a database that is not there")
	}
	if _, err := db.Status(t.Context(), "no url"); err == nil {
		t.Error("it read the state of nothing")
	}
}

func TestHash_is_stable(t *testing.T) {
	t.Parallel()
	first, err := db.Hash()
	if err != nil {
		t.Fatal(err)
	}
	second, err := db.Hash()
	if err != nil || first != second || len(first) != 16 {
		t.Errorf("hashes %q and %q, %v", first, second, err)
	}
}

func status(t *testing.T, url string) []db.Migration {
	t.Helper()
	all, err := db.Status(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
