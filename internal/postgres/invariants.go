package postgres

import (
	"context"
	"fmt"
	"time"
)

// Violation is one invariant of the books and how many rows break it: none,
// unless something is very wrong.
type Violation struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
	Hint  string `json:"hint"` // what it says, and what a breach means
}

// Invariants checks the books and returns every invariant with its count, 0
// when it holds. Each is one statement, so it sees one moment and may run under
// load. stuckAfter is the time after which Stuck ends silent jobs.
//
// Most cannot be broken while the constraints of the tables are in place; they
// are for the day when a restore, a repair by hand or a new transition got past
// those.
func (db *DB) Invariants(ctx context.Context, stuckAfter time.Duration) ([]Violation, error) {
	all := make([]Violation, 0, len(invariants())+1)
	for _, i := range invariants() {
		var n int64
		// Whole tables are read: the time is the caller's, not that of a call.
		if err := db.conn.GetContext(ctx, &n, i.query); err != nil {
			return nil, fmt.Errorf("check %s: %w", i.name, err)
		}
		all = append(all, Violation{Name: i.name, Count: n, Hint: i.hint})
	}
	// The sweeper gets a minute beyond the limit.
	n, err := db.count(ctx, `select count(*) from jobs where finished_at is null and `+silent("$1"), interval(stuckAfter+time.Minute))
	if err != nil {
		return nil, fmt.Errorf("check no_job_hangs: %w", err)
	}
	return append(all, Violation{Name: "no_job_hangs", Count: n,
		Hint: "Jobs without a sign of life are failed and refunded in time; if not, no sweeper is running."}), nil
}
