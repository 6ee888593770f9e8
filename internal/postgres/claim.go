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
	Last                   // its last attempt: Claim it when this process works on nothing else
	GivenUp                // failed and refunded by this very claim: acknowledge the message, and tell who waits
)

// String names the verdict for logs.
func (v Verdict) String() string {
	return [...]string{"gone", "claimed", "leased", "last", "given up"}[v]
}

// Claim takes a job for a worker: a queued one, one that its worker gave back,
// or one whose lease has run out. The fence rises by one, so that whatever the
// last worker still does changes nothing.
//
// A job whose lease ran out when job.MaxClaims attempts had come to nothing is
// not given to another worker: it is failed and refunded, and GivenUp. A repeat
// after a lost answer says Gone.
func (db *DB) Claim(ctx context.Context, id job.ID, lease time.Duration) (job.Job, Verdict, error) {
	return db.claim(ctx, id, lease, false)
}

// ClaimBeside is Claim for a process that works on other jobs as well. A
// picture that kills its process takes the attempts of those with it, so one
// attempt of every job is its own: a job on its last one is left alone, and is
// Last. Nobody holds it then; workers that live keep it from being swept.
func (db *DB) ClaimBeside(ctx context.Context, id job.ID, lease time.Duration) (job.Job, Verdict, error) {
	return db.claim(ctx, id, lease, true)
}

func (db *DB) claim(ctx context.Context, id job.ID, lease time.Duration, beside bool) (j job.Job, _ Verdict, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("claim job %s: %w", id, err)
		}
	}()
	var claimed []jobRow
	err = db.list(ctx, &claimed, `
		update jobs
		set state = 'processing', fence = fence + 1, message = $2, lapses = lapses + `+lapse+`,
			lease_until = clock_timestamp() + $3::interval, heartbeat_at = clock_timestamp(),
			enqueued_at = coalesce(enqueued_at, clock_timestamp()), updated_at = clock_timestamp()
		where id = $1 and (
			state = 'queued'
			or state = 'processing' and lease_until is null
			or state = 'processing' and lease_until < clock_timestamp() and lapses + 1 < $4)
			and not ($5 and lapses + `+lapse+` >= $4 - 1)
		returning `+jobColumns,
		string(id), job.Processing.Message(), interval(lease), job.MaxClaims, beside)
	switch {
	case pq.As(err, pqerror.InvalidTextRepresentation) != nil:
		return job.Job{}, Gone, nil // no job has such an id
	case err != nil:
		return job.Job{}, Gone, err
	case len(claimed) == 1:
		return claimed[0].job(), Claimed, nil
	}

	var found []struct {
		Free bool `db:"free"` // nobody has it
		Over bool `db:"over"` // somebody had it, whose lease has run out
	}
	err = db.list(ctx, &found, `
		select lease_until is null as free, coalesce(lease_until < clock_timestamp(), false) as over
		from jobs where id = $1 and finished_at is null`, string(id))
	switch {
	case err != nil:
		return job.Job{}, Gone, err
	case len(found) == 0:
		return job.Job{}, Gone, nil
	case found[0].Over:
		return db.afterLapse(ctx, id, beside)
	case found[0].Free && beside:
		return job.Job{}, Last, nil
	}
	return job.Job{}, Leased, nil
}

// lapse is 1 for a job whose lease has run out, if it is to be claimed at all.
const lapse = `case when state = 'processing' and lease_until is not null then 1 else 0 end`

// afterLapse is the verdict on a job whose lease has run out and that could not
// be claimed: its last attempt waits for a process of its own, or is over.
func (db *DB) afterLapse(ctx context.Context, id job.ID, beside bool) (job.Job, Verdict, error) {
	if beside {
		n, err := db.exec(ctx, `
			update jobs set lapses = lapses + 1, lease_until = null, updated_at = clock_timestamp()
			where id = $1 and state = 'processing' and lease_until < clock_timestamp() and lapses + 2 = $2`,
			string(id), job.MaxClaims)
		if err != nil {
			return job.Job{}, Gone, err
		}
		if n == 1 {
			return job.Job{}, Last, nil
		}
	}
	n, err := db.exec(ctx, failWhere(poisoned("$3"), keepKey), string(id),
		fmt.Sprintf("The image was given up after %d attempts. Its Point was given back.", job.MaxClaims), job.MaxClaims)
	if err != nil {
		return job.Job{}, Gone, err
	}
	if n == 1 {
		return job.Job{}, GivenUp, nil
	}
	return job.Job{}, Leased, nil // something happened to it meanwhile
}
