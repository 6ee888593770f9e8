// Package admission turns a checked image into a stored, charged and queued
// job, or into a refusal that charged nothing.
//
// What survives a crash after each step of Admit:
//
//	stored     an input without a job: the sweeper deletes it
//	charged    a job that was never published: the sweeper cancels and refunds it
//	published  a job like any other; only its answer was lost, and a repeat with
//	           the same Idempotency-Key gets it
package admission

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"pictor/internal/blob"
	"pictor/internal/bus"
	"pictor/internal/fault"
	"pictor/internal/job"
	"pictor/internal/postgres"
)

// settle bounds what must still be done when the client is gone: queueing a
// charged job, or taking its charge back.
const settle = 10 * time.Second

// Request asks for one job.
type Request struct {
	Account int64
	Task    job.Task
	Input   job.Image
	SHA256  [sha256.Size]byte // of the image's bytes
	Body    io.Reader         // the image's bytes
	Key     string            // Idempotency-Key, "" for none
}

// Fingerprint tells a repeat from another request under the same key: the task
// (which holds the options) and the image. The envelope and `wait` may differ.
func (r Request) Fingerprint() []byte {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n", r.Task)
	h.Write(r.SHA256[:])
	return h.Sum(nil)
}

// Admission admits jobs.
type Admission struct {
	// Refunded, when set, is called for every charge that was taken back because
	// its job could not be queued. It is set before the first Admit.
	Refunded func()
	// Trace, when set, names the trace that a request belongs to, "" for none.
	// It is set before the first Admit.
	Trace func(context.Context) string

	db    *postgres.DB
	store *blob.Store
	queue *bus.Bus
	log   *slog.Logger
}

// New wires an Admission.
func New(db *postgres.DB, store *blob.Store, queue *bus.Bus, log *slog.Logger) *Admission {
	return &Admission{db: db, store: store, queue: queue, log: log}
}

// Look is a look at whether Admit would refuse the account now, which keeps
// refusals cheap: it comes before the image is stored, or even read. It decides
// nothing, the charge has the last word. A request with an Idempotency-Key is
// not looked at: it may repeat one that was admitted.
func (a *Admission) Look(ctx context.Context, account int64, task job.Task, key string) error {
	if key != "" {
		return nil
	}
	return a.db.Affords(ctx, account, task.Cost())
}

// Admit stores the image, charges the account and queues the job. Its refusals
// are those of postgres.Admit (no such account, too many jobs, not enough Point,
// another request under the same key) and fault.QueueError.
func (a *Admission) Admit(ctx context.Context, r Request) (postgres.Admitted, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return postgres.Admitted{}, fmt.Errorf("make a job id: %w", err)
	}
	charge := postgres.Admission{ID: job.ID(id.String()), Account: r.Account, Task: r.Task, Input: r.Input, Key: r.Key, Fingerprint: r.Fingerprint()}

	if err := a.store.Put(ctx, charge.ID.InputKey(), r.Input.Type, r.Body); err != nil {
		return postgres.Admitted{}, fmt.Errorf("store the input of job %s: %w", charge.ID, err)
	}

	// From here on the client may leave; money must not be left half-way.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settle)
	defer cancel()
	admitted, err := a.db.Admit(ctx, charge)
	if err != nil || admitted.Replayed {
		a.discard(ctx, charge.ID, err)
	}
	switch {
	case err != nil:
		return postgres.Admitted{}, err
	case admitted.Replayed:
		err = a.reenqueue(ctx, admitted)
	default:
		err = a.enqueue(ctx, admitted.Job)
	}
	if err != nil {
		return postgres.Admitted{}, err
	}
	return admitted, nil
}

// reenqueue publishes the job of an earlier request that has not been confirmed
// as queued: that request is on its way, or its process died. JetStream absorbs
// the copy. When it fails the job is not cancelled here: it is the earlier
// request's, or the sweeper's. Nor may the answer be that nothing was charged:
// the earlier request may have queued the job all the same.
func (a *Admission) reenqueue(ctx context.Context, first postgres.Admitted) error {
	if first.Enqueued || first.Job.State.Final() {
		return nil
	}
	if err := a.queue.Publish(ctx, first.Job.Task, first.Job.ID, first.Job.Fence); err != nil {
		return fault.Busy(err)
	}
	stands, err := a.db.Enqueued(ctx, first.Job.ID)
	if err == nil && !stands {
		return fault.Queue(errors.New("the sweeper cancelled the job before it was marked as queued"))
	}
	return nil
}

// enqueue publishes a charged job. If that fails the charge is taken back,
// unless a worker has the job all the same.
func (a *Admission) enqueue(ctx context.Context, j job.Job) error {
	a.trace(ctx, j.ID)
	err := a.queue.Publish(ctx, j.Task, j.ID, j.Fence)
	if err == nil {
		var stands bool
		if stands, err = a.db.Enqueued(ctx, j.ID); stands {
			return nil
		}
		if err != nil {
			// Published, but not marked so. Either a worker takes it, or the
			// sweeper cancels it as never published: the job ends either way.
			a.log.WarnContext(ctx, "a queued job could not be marked", "job", j.ID, "error", err)
			return nil
		}
		return fault.Queue(errors.New("the sweeper cancelled the job before it was marked as queued"))
	}
	cancelled, cancelErr := a.db.Cancel(ctx, j.ID, "The job could not be queued, and its charge was given back.")
	switch {
	case cancelErr != nil:
		// Nobody knows: the message may have arrived, and a worker may take the
		// job before the sweeper cancels it. So this must not say "not charged".
		return fault.Billing(errors.Join(err, cancelErr))
	case !cancelled:
		return nil // the message arrived after all and a worker claimed the job
	}
	if a.Refunded != nil {
		a.Refunded()
	}
	return fault.Queue(err)
}

// trace records the trace of a job. Its message carries it too, but a message
// may be lost.
func (a *Admission) trace(ctx context.Context, id job.ID) {
	if a.Trace == nil {
		return
	}
	if trace := a.Trace(ctx); trace != "" {
		if err := a.db.Trace(ctx, id, trace); err != nil {
			a.log.WarnContext(ctx, "a job leaves its trace", "job", id, "error", err)
		}
	}
}

// discard deletes an input that no job owns. After an unknown outcome of the
// charge it stays: the sweeper knows later whether a job owns it.
func (a *Admission) discard(ctx context.Context, id job.ID, charged error) {
	if charged != nil && (errors.Is(charged, &fault.Error{Code: fault.BillingUnavailable}) || !isRefusal(charged)) {
		return
	}
	if err := a.store.Delete(ctx, id.InputKey()); err != nil {
		a.log.WarnContext(ctx, "an input without a job stays until the sweeper comes", "job", id, "error", err)
	}
}

func isRefusal(err error) bool {
	var refusal *fault.Error
	return errors.As(err, &refusal)
}
