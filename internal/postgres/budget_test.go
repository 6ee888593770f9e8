package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"pictor/internal/point"
	"pictor/internal/testkit/pgtest"
)

// The README promises it to whoever sizes Postgres, or the pgbouncer before it:
// a process holds no more connections than this, however much it is asked.
func TestOpen_keeps_to_its_16_connections(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	process := pgtest.Open(t, b.url)
	a := pgtest.NewAccount(t, b.DB, point.Point)
	holder, err := b.raw.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback()
	if _, err := holder.Exec(`select from accounts where id = $1 for update`, a.ID); err != nil {
		t.Fatal(err)
	}

	// All of these want the account at once, and ask again when their time is up.
	seen, enough := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer enough()
	for range 64 {
		asking.Go(func() {
			for seen.Err() == nil {
				_, _ = process.Admit(seen, pgtest.Admission(t, a.ID))
			}
		})
	}
	connections := func() int64 {
		return b.number(t, `select count(*) from pg_stat_activity where application_name = '`+t.Name()+`' and wait_event_type = 'Lock'`)
	}
	tick, deadline := time.NewTicker(5*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for connections() < 16 {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d connections wait", connections())
		}
	}
	same(t, "connections", 16, b.number(t, `select count(*) from pg_stat_activity where application_name = '`+t.Name()+`'`))
	enough()
	if err := holder.Rollback(); err != nil {
		t.Fatal(err)
	}
}
