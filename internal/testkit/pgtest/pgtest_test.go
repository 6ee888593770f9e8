package pgtest_test

import (
	"database/sql"
	"testing"

	"pictor/internal/testkit/pgtest"
)

func TestNew_gives_each_test_a_database_of_its_own(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"one", "another"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			a, err := db.CreateAccount(t.Context(), "the only one", 1000, false)
			if err != nil {
				t.Fatal(err)
			}
			j := pgtest.Claimed(t, db, a.ID)
			if j.Account != a.ID || j.Fence != 1 {
				t.Errorf("claimed %+v", j)
			}
			all, err := db.Accounts(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(all) != 1 {
				t.Errorf("%d accounts", len(all))
			}
		})
	}
}

func TestURL_is_dropped_after_the_test(t *testing.T) {
	t.Parallel()
	var url string
	t.Run("the test", func(t *testing.T) { url = pgtest.URL(t) })
	db, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.PingContext(t.Context()); err == nil {
		t.Error("the database is still there")
	}
}
