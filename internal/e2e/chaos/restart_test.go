package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"pictor/internal/point"
)

// Every process is asked to stop and started anew, one after the other, under
// load: nobody gets an error for it, no job fails of it, and nobody's answer is
// lost. Only the process that is away refuses connections.
func TestRolling_restart_fails_no_request(t *testing.T) {
	t.Parallel()
	k := newStack(t, size{serves: 2, workers: 2, slots: 1})
	k.begin(t, k.nodes()...)
	l, first := k.client(t, 1000*point.Point)
	asking, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	for i := range 16 {
		a := first
		if i > 0 {
			a = k.open(t, fmt.Sprintf("customer-%d-%s", i, uuid.NewString()), 1000*point.Point)
			l.book.accounts = append(l.book.accounts, a)
		}
		clients.Go(func() { l.run(asking, t.Context(), a, rand.New(rand.NewPCG(uint64(i), 9))) })
	}
	for _, n := range k.nodes() {
		r := &row{name: n.name, away: n.base}
		l.book.begin(r)
		l.book.await(t, r, 20) // answers: the load is there
		began := time.Now()
		if !n.terminate(time.Minute) {
			t.Errorf("%s did not stop within a minute", n.name)
		}
		took := time.Since(began)
		l.book.await(t, r, 20)
		k.begin(t, n)
		l.book.await(t, r, 20)
		t.Logf("%s stopped in %s", n.name, took.Round(time.Millisecond))
		l.book.unharmed(t, r)
	}
	last := &row{name: "nobody"}
	l.book.begin(last)
	stop()
	clients.Wait()
	l.book.unharmed(t, last)
	k.close(t, l)
}

// await returns when so many more requests are answered.
func (b *book) await(t testing.TB, r *row, more int) {
	t.Helper()
	answered := func() (n int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, count := range r.statuses {
			n += count
		}
		return n
	}
	for deadline, enough := time.Now().Add(time.Minute), answered()+more; answered() < enough; {
		if time.Now().After(deadline) {
			t.Fatalf("no %d requests were answered within a minute around the stop of %s", more, r.name)
		}
		pause(t.Context(), 20*time.Millisecond)
	}
}

// unharmed holds that no request and no job failed, and that nobody refused a
// connection but the server that was away.
func (b *book) unharmed(t testing.TB, r *row) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for status, count := range r.statuses {
		if status == noAnswer || status == noServer || status >= http.StatusInternalServerError {
			t.Errorf("while %s stopped, %d requests ended with %d: %s", r.name, count, status, r.cuts)
		}
	}
	if r.refunded > 0 {
		t.Errorf("while %s stopped, %d jobs failed", r.name, r.refunded)
	}
	t.Logf("around the stop of %s: %s; connections refused: %d", r.name, r.byStatus(), r.refusals[r.away])
	for base, count := range r.refusals {
		if base != r.away {
			t.Errorf("while %s stopped, %s refused %d connections", r.name, base, count)
		}
	}
}
