package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/job"
	"pictor/internal/point"
)

// Three NATS servers keep the queue. Under load the one that leads the stream
// is killed, and its work goes on with the others. Then a second one is killed,
// and what is left may not confirm anything: nobody gets a job, nobody pays.
// Both come back, and every job that was accepted is done.
func TestQueue_of_three_servers_loses_nothing_with_two_of_them(t *testing.T) {
	t.Parallel()
	k := newStack(t, size{serves: 2, workers: 2, slots: 1, queue: 3, stuck: 3 * time.Minute})
	k.begin(t, k.nodes()...)
	first := k.awaitMembers(t, 3) // the servers may have met after the stream was made

	l, probes := k.client(t, 1000*point.Point)
	asking, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	for i := range 6 {
		a := k.open(t, fmt.Sprintf("customer-%d", i), 1000*point.Point)
		l.book.accounts = append(l.book.accounts, a)
		clients.Go(func() { l.run(asking, t.Context(), a, rand.New(rand.NewPCG(uint64(i), 10))) })
	}
	r := rand.New(rand.NewPCG(1, 11))
	phase := func(name string) (end func()) {
		of, began := &row{}, time.Now()
		l.book.begin(of)
		return func() {
			l.book.mu.Lock()
			defer l.book.mu.Unlock()
			t.Logf("%s: admission was refused for %s; requests by status %s", name, of.refusedFor(began).Round(10*time.Millisecond), of.byStatus())
		}
	}

	end := phase("three servers")
	recovery(t, k, l, probes, r)
	end()

	end = phase("the leader of three is killed")
	first.kill()
	recovery(t, k, l, probes, r)
	second := k.awaitMembers(t, 2)
	recovery(t, k, l, probes, r)
	end()

	end = phase("the leader of two is killed")
	second.kill()
	outsider := k.open(t, "outsider", 1000*point.Point)
	l.book.accounts = append(l.book.accounts, outsider)
	for range 3 {
		refused := &ticket{account: outsider, task: job.Upscale2x}
		l.book.open(refused)
		status, _, err := l.post(t.Context(), refused, 0, l.small[0], 0, r)
		if err != nil || status != http.StatusBadGateway {
			t.Errorf("with one server of three a job is answered %d (%v), want 502", status, err)
		}
		if a, err := k.db.AccountByID(t.Context(), outsider.id); err != nil || a.Balance != outsider.opening || a.Running != 0 {
			t.Errorf("after the refusal its account is %+v (%v), want %s and nothing running", a, err, outsider.opening)
		}
	}
	for _, s := range k.queue {
		if s == first || s == second {
			if err := s.start(); err != nil {
				t.Fatal(err)
			}
		}
	}
	recovery(t, k, l, probes, r)
	end()

	end = phase("three servers again")
	k.awaitMembers(t, 3)
	recovery(t, k, l, probes, r)
	end()
	stop()
	clients.Wait()
	k.close(t, l)
	if left := k.messagesLeft(t); len(left) > 0 {
		t.Errorf("messages come again and again:\n%s", strings.Join(left, "\n"))
	}
	k.doctor(t)
}

// refusedFor is the longest time between two accepted jobs, or from the start to
// the first, in which one was refused.
func (r *row) refusedFor(since time.Time) (longest time.Duration) {
	refused := false
	for _, a := range r.admissions {
		if a.status == http.StatusBadGateway || a.status == http.StatusServiceUnavailable {
			refused = true
			continue
		}
		if refused {
			longest = max(longest, a.at.Sub(since))
		}
		since, refused = a.at, false
	}
	return longest
}

func TestRefusedFor_is_the_time_between_two_accepted_jobs(t *testing.T) {
	t.Parallel()
	at := func(second, status int) admissionAnswer {
		return admissionAnswer{time.Unix(int64(second), 0), status}
	}
	r := &row{admissions: []admissionAnswer{at(1, 202), at(3, 202), at(4, 502), at(9, 503), at(10, 200), at(20, 200), at(21, 502), at(22, 202)}}
	if diff := cmp.Diff(7*time.Second, r.refusedFor(time.Unix(0, 0))); diff != "" {
		t.Error(diff)
	}
	r.admissions = r.admissions[3:]
	if diff := cmp.Diff(9*time.Second, r.refusedFor(time.Unix(1, 0))); diff != "" {
		t.Error(diff)
	}
}
