package chaos_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"pictor/internal/job"
	"pictor/internal/point"
)

// A worker that was away for longer than its lease comes back with a finished
// picture, while another one has begun the job anew.
func TestWorker_that_lost_its_lease_changes_nothing(t *testing.T) {
	t.Parallel()
	k := newStack(t, size{serves: 1, workers: 2, slots: 1})
	k.begin(t, k.serves[0], k.workers[0])
	l, a := k.client(t, 10*point.Point)
	late := holdAt(t, k.workers[0], true, completing)
	next := holdAt(t, k.workers[1], false, claiming)

	id := l.ask(t, a)
	await(t, "the first worker completes", late.reached)
	k.begin(t, k.workers[1])
	await(t, "the second worker claims", next.reached)
	answered := make(chan struct{})
	k.workers[0].database.set(rules{after: func(_ context.Context, s string) error {
		if strings.Contains(s, completing) {
			close(answered)
		}
		return nil
	}})
	late.let()
	await(t, "the database answers the first worker", answered)
	if j := k.job(t, id); j.State != job.Processing || j.Fence != 2 {
		t.Errorf("after the late write the job is %s under fence %d, want processing under 2", j.State, j.Fence)
	}
	next.let()
	k.awaitState(t, id, job.Completed, time.Minute)
	k.close(t, l)
}

// A worker falls silent until the sweeper gives its job up and refunds it; then
// it wants to complete the job after all.
func TestJob_that_was_given_up_stays_refunded(t *testing.T) {
	t.Parallel()
	k := newStack(t, size{serves: 1, workers: 1, slots: 1, stuck: 5 * time.Second})
	k.begin(t, k.nodes()...)
	l, a := k.client(t, 10*point.Point)
	late := holdAt(t, k.workers[0], true, completing)

	id := l.ask(t, a)
	await(t, "the worker completes", late.reached)
	k.awaitState(t, id, job.Failed, time.Minute)
	answered := make(chan struct{})
	k.workers[0].database.set(rules{after: func(_ context.Context, s string) error {
		if strings.Contains(s, completing) {
			close(answered)
		}
		return nil
	}})
	late.let()
	await(t, "the database answers the worker", answered)
	if j := k.job(t, id); j.State != job.Failed || !j.Refunded {
		t.Errorf("after the late write the job is %s, refunded %t", j.State, j.Refunded)
	}
	k.close(t, l)
}

// A worker dies before its job's end is written, and no sweeper is there: the
// message itself must come back.
func TestMessage_outlives_a_worker_that_died_before_the_commit(t *testing.T) {
	t.Parallel()
	k := newStack(t, size{serves: 1, workers: 2, slots: 1})
	k.begin(t, k.serves[0], k.workers[0])
	l, a := k.client(t, 10*point.Point)
	end := holdAt(t, k.workers[0], true, completing)

	id := l.ask(t, a)
	await(t, "the worker completes", end.reached)
	k.serves[0].kill()
	k.workers[0].kill()
	k.begin(t, k.workers[1])
	took := k.awaitState(t, id, job.Completed, k.lease+k.ackWait+time.Minute)
	t.Logf("the next worker had it after %s", took.Round(time.Millisecond))
	k.begin(t, k.serves[0])
	k.close(t, l)
}

// A picture that kills every worker that takes it is given up.
func TestPicture_that_kills_its_workers_is_given_up(t *testing.T) {
	t.Parallel()
	k := newStack(t, size{serves: 1, workers: 1, slots: 1, stuck: time.Hour})
	k.begin(t, k.nodes()...)
	l, a := k.client(t, 10*point.Point)
	w := k.workers[0]
	w.database.set(rules{before: func(ctx context.Context, s string) error {
		if !strings.Contains(s, completing) {
			return nil
		}
		w.signal(syscall.SIGKILL)
		<-ctx.Done()
		return errCut
	}})
	id := l.ask(t, a)
	for range job.MaxClaims {
		await(t, "the worker dies of the picture", w.ended())
		if err := w.start(); err != nil { // it may die again before it says that it is ready
			t.Fatal(err)
		}
	}
	k.awaitState(t, id, job.Failed, k.lease+k.ackWait+time.Minute)
	if j := k.job(t, id); j.Fence != job.MaxClaims {
		t.Errorf("the picture was given up after %d claims, want %d", j.Fence, job.MaxClaims)
	}
	k.close(t, l)
}
