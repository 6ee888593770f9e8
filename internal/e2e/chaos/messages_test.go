package chaos_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"pictor/internal/job"
	"pictor/internal/point"
)

// The queue forgets everything while jobs wait in it.
func TestJobs_outlive_a_queue_that_lost_its_store(t *testing.T) {
	t.Parallel()
	k := newStack(t, size{serves: 1, workers: 1, slots: 1})
	k.begin(t, k.serves[0])
	l, a := k.client(t, 10*point.Point)
	ids := []job.ID{l.ask(t, a), l.ask(t, a), l.ask(t, a)}
	if err := restartQueue(wipe)(t.Context(), k, l.book, rand.New(rand.NewPCG(1, 4))); err != nil {
		t.Fatal(err)
	}
	k.begin(t, k.workers[0])
	for _, id := range ids {
		k.awaitState(t, id, job.Completed, k.lost+45*time.Second)
	}
	k.close(t, l)
}

// A job finishes in the moment between a waiter's look and its sleep. The look
// is held back on its way from the database until the wake-up has come.
func TestWaiter_misses_no_wakeup(t *testing.T) {
	t.Parallel()
	k := newStack(t, size{serves: 1, workers: 1, slots: 1})
	k.begin(t, k.nodes()...)
	l, a := k.client(t, 10*point.Point)
	end := holdAt(t, k.workers[0], true, completing)
	id := l.ask(t, a)
	await(t, "the worker completes", end.reached)

	look := holdAt(t, k.serves[0], false, reading, rereading)
	wakeup := k.serves[0].queue.hears("jobs.finished." + string(id))
	answered := make(chan struct{})
	var began time.Time
	var seen answer
	go func() {
		defer close(answered)
		seen, _ = l.look(t.Context(), a, id, 30, rand.New(rand.NewPCG(1, 5)))
	}()
	await(t, "the waiter looks", look.reached)
	end.let()
	await(t, "the wake-up comes", wakeup)
	pause(t.Context(), 100*time.Millisecond) // from the socket to whoever listens
	began = time.Now()
	look.let()
	await(t, "the waiter is answered", answered)
	took := time.Since(began)
	if seen.Status != job.Completed || took > 3*time.Second {
		t.Errorf("the waiter was answered %q after %s: it had to look again by itself", seen.Status, took.Round(time.Millisecond))
	}
	k.close(t, l)
}
