package chaos_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"pictor/internal/job"
	"pictor/internal/point"
)

// Pieces of the statements that the tests below hold on to. A test that never
// meets its statement fails by saying so.
const (
	admitting  = "from admit("
	claiming   = "fence = fence + 1"
	completing = "set state = 'completed'"
	reading    = "from jobs where id = any"
	rereading  = "select id from jobs where id = any" // is cut before it is taken for reading
)

// hold stops the first exchange with a statement until it is let go. Later ones
// pass.
type hold struct {
	reached chan struct{}
	release chan struct{}
	let     func()
}

// holdAt sets a node's rules to one hold: on what the node has sent and the
// database has not, or on what the database has done and the node does not know.
// Exchanges with the statements to cut lose their connection.
func holdAt(t testing.TB, n *node, sent bool, statement string, cut ...string) *hold {
	t.Helper()
	h := &hold{reached: make(chan struct{}), release: make(chan struct{})}
	h.let = sync.OnceFunc(func() { close(h.release) })
	t.Cleanup(h.let)
	var first sync.Once
	rule := func(ctx context.Context, s string) error {
		if slices.ContainsFunc(cut, func(c string) bool { return strings.Contains(s, c) }) {
			return errCut
		}
		if !strings.Contains(s, statement) {
			return nil
		}
		var err error
		first.Do(func() {
			close(h.reached)
			select {
			case <-h.release:
			case <-ctx.Done():
				err = errCut
			}
		})
		return err
	}
	if sent {
		n.database.set(rules{before: rule})
	} else {
		n.database.set(rules{after: rule})
	}
	return h
}

// await fails the test when something does not happen in time.
func await(t testing.TB, what string, happens <-chan struct{}) {
	t.Helper()
	select {
	case <-happens:
	case <-time.After(time.Minute):
		t.Fatalf("it did not happen within a minute: %s", what)
	}
}

// awaitState looks until a job is as wanted, and returns how long that took.
func (k *stack) awaitState(t testing.TB, id job.ID, want job.State, atMost time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		j, err := k.db.Job(t.Context(), 0, id)
		if err != nil {
			t.Fatal(err)
		}
		if j.State == want {
			return time.Since(began)
		}
		if j.State.Final() || time.Since(began) > atMost {
			t.Fatalf("job %s is %s after %s, want %s", id, j.State, time.Since(began).Round(time.Millisecond), want)
		}
		pause(t.Context(), 20*time.Millisecond)
	}
}

func (k *stack) job(t testing.TB, id job.ID) job.Job {
	t.Helper()
	j, err := k.db.Job(t.Context(), 0, id)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// client is one customer with a book of its own.
func (k *stack) client(t testing.TB, balance point.Amount) (*load, *account) {
	t.Helper()
	b := newBook()
	a := k.open(t, "customer-"+uuid.NewString(), balance)
	b.accounts = append(b.accounts, a)
	return newLoad(t, b, k.bases()), a
}

// ask wants one picture enlarged and returns the job that stands for it.
func (l *load) ask(t testing.TB, a *account) job.ID {
	t.Helper()
	ticket := &ticket{account: a, task: job.Upscale2x, key: uuid.NewString()}
	l.book.open(ticket)
	id, ok := l.submit(t.Context(), ticket, 0, rand.New(rand.NewPCG(1, 1)))
	if !ok {
		t.Fatalf("the job was not accepted: %s", l.book.row.byStatus())
	}
	return id
}

// close holds everything against everything.
func (k *stack) close(t testing.TB, l *load) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), k.stuck+time.Minute)
	defer cancel()
	l.settle(ctx, rand.New(rand.NewPCG(1, 2)))
	k.rest(ctx)
	verdict(t, k, l.book)
	for _, p := range l.book.all() {
		t.Error(p)
	}
}
