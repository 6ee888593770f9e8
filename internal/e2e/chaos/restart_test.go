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
// load: nobody gets an error for it, and nobody's answer is lost.
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
		r := &row{}
		l.book.begin(r)
		began := time.Now()
		if !n.terminate(time.Minute) {
			t.Errorf("%s did not stop within a minute", n.name)
		}
		took := time.Since(began)
		k.begin(t, n)
		l.book.begin(&row{})
		for status, count := range r.statuses {
			if status == noAnswer || status == noServer || status >= http.StatusInternalServerError {
				t.Errorf("while %s stopped, %d requests ended with %d: %s", n.name, count, status, r.cuts)
			}
		}
		t.Logf("%s stopped in %s: %s", n.name, took.Round(time.Millisecond), r.byStatus())
	}
	stop()
	clients.Wait()
	k.close(t, l)
}
