package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"pictor/internal/job"
)

// Verdict is the outcome of a claim.
type Verdict int

// The outcomes.
const (
	Gone    Verdict = iota // final or unknown: acknowledge the message
	Claimed                // work on it, under the job's fence
	Leased                 // another worker's lease still runs: come back later, never acknowledge
)

// String names the verdict for logs.
func (v Verdict) String() string { return [...]string{"gone", "claimed", "leased"}[v] }

// Claim takes a job for a worker: a queued one, one that its worker gave back,
// or one whose lease has run out. The fence rises by one, so that whatever the
// last worker still does changes nothing.
//
// A job whose lease ran out under job.MaxClaims workers is not given to
// another one: it is failed and refunded, and Gone.
func (db *DB) Claim(ctx context.Context, id job.ID, lease time.Duration) (job.Job, Verdict, error) {
	var claimed []jobRow
	err := db.list(ctx, &claimed, `
		update jobs
		set state = 'processing', fence = fence + 1, message = $2,
			lapses = lapses + case when state = 'processing' and lease_until is not null then 1 else 0 end,
			lease_until = clock_timestamp() + $3::interval, heartbeat_at = clock_timestamp(),
			enqueued_at = coalesce(enqueued_at, clock_timestamp()), updated_at = clock_timestamp()
		where id = $1 and (
			state = 'queued'
			or state = 'processing' and lease_until is null
			or state = 'processing' and lease_until < clock_timestamp() and lapses + 1 < $4)
		returning `+jobColumns,
		string(id), job.Processing.Message(), interval(lease), job.MaxClaims)
	switch {
	case pq.As(err, pqerror.InvalidTextRepresentation) != nil:
		return job.Job{}, Gone, nil // no job has such an id
	case err != nil:
		return job.Job{}, Gone, fmt.Errorf("claim job %s: %w", id, err)
	}
	if len(claimed) == 1 {
		return claimed[0].job(), Claimed, nil
	}

	if err := db.giveUp(ctx, id); err != nil {
		return job.Job{}, Gone, fmt.Errorf("claim job %s: %w", id, err)
	}
	unfinished, err := db.count(ctx, `select count(*) from jobs where id = $1 and finished_at is null`, string(id))
	if err != nil {
		return job.Job{}, Gone, fmt.Errorf("claim job %s: %w", id, err)
	}
	if unfinished == 1 {
		return job.Job{}, Leased, nil
	}
	return job.Job{}, Gone, nil
}

// giveUp fails and refunds a poisoned job.
func (db *DB) giveUp(ctx context.Context, id job.ID) error {
	_, err := db.exec(ctx, failWhere(poisoned("$3"), keepKey), string(id),
		fmt.Sprintf("The image was given up after %d attempts. Its Point was given back.", job.MaxClaims), job.MaxClaims)
	return err
}
