package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"
)

// turnTime is how long a turn lasts whose process died in it.
const turnTime = 10 * time.Second

// TrySweep asks for the turn to sweep, so that of many processes one at a time
// does. release gives the turn back. A process that stalls may lose its turn
// and not notice, so sweeping must be correct without; the turn saves work.
//
// It is a row and not an advisory lock: those belong to a session, which a
// transaction-pooling pgbouncer does not give, or to a transaction, which would
// have to stay open while the store and the queue are at work.
func (db *DB) TrySweep(ctx context.Context) (turn bool, release func(), err error) {
	holder := rand.Text()
	n, err := db.exec(ctx, `
		insert into turns (name, holder, held_until) values ('sweep', $1, clock_timestamp() + $2::interval)
		on conflict (name) do update set holder = excluded.holder, held_until = excluded.held_until
		where turns.holder = excluded.holder or turns.held_until < clock_timestamp()`, holder, interval(turnTime))
	if err != nil {
		return false, nil, fmt.Errorf("ask for the turn to sweep: %w", err)
	}
	release = func() {
		// A turn that is not given back ends by itself.
		_, _ = db.exec(context.WithoutCancel(ctx), `delete from turns where name = 'sweep' and holder = $1`, holder)
	}
	return n == 1, release, nil
}
