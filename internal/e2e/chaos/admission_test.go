package chaos_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
)

// The tables refuse a second charge or refund whatever the code does. This asks
// the schema itself, because no way through the program leads there.
func TestLedger_takes_one_charge_and_one_refund_for_a_job(t *testing.T) {
	t.Parallel()
	k := newStack(t, size{})
	a := k.open(t, "customer", 10*point.Point)
	id := job.ID(uuid.NewString())
	if _, err := k.db.Admit(t.Context(), admission(id, a)); err != nil {
		t.Fatal(err)
	}
	if done, err := k.db.Cancel(t.Context(), id, "Cancelled."); err != nil || !done {
		t.Fatal(done, err)
	}
	for _, row := range []struct {
		kind   string
		amount point.Amount
	}{{"charge", -100}, {"refund", 100}} {
		_, err := k.sql.ExecContext(t.Context(), `
			insert into ledger (account_id, job_id, kind, amount, balance_after) values ($1, $2, $3, $4, 10000)`,
			a.id, string(id), row.kind, int64(row.amount))
		if pq.As(err, pqerror.UniqueViolation) == nil {
			t.Errorf("a second %s: %v, want a unique violation", row.kind, err)
		}
	}
}

func admission(id job.ID, a *account) postgres.Admission {
	return postgres.Admission{ID: id, Account: a.id, Task: job.Upscale2x, Input: job.Image{Type: job.PNG, Size: 1, Width: 1, Height: 1}}
}

// Many clients of one account at the same instant get as many jobs as the
// account may have, or can pay, and not one more. The first admissions wait for
// each other on their way to the database: on a busy machine they would come
// one after the other, and prove nothing.
func TestLimits_hold_against_many_clients(t *testing.T) {
	t.Parallel()
	const clients = 64
	k := newStack(t, size{serves: 2})
	k.begin(t, k.nodes()...)
	for _, c := range []struct {
		name     string
		balance  point.Amount
		accepted int
		refusal  int
	}{
		{"running jobs", 100 * point.Point, job.MaxRunning, http.StatusTooManyRequests},
		{"balance for three", 3*job.Upscale2x.Cost() + 50, 3, http.StatusPaymentRequired},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, a := k.client(t, c.balance)
			const abreast = 10
			var arrived atomic.Int64
			together := make(chan struct{})
			for _, n := range k.serves {
				n.database.set(rules{before: func(ctx context.Context, s string) error {
					if !strings.Contains(s, admitting) {
						return nil
					}
					if arrived.Add(1) == abreast {
						close(together)
					}
					select {
					case <-together:
					case <-ctx.Done():
					}
					return nil
				}})
			}
			begin := make(chan struct{})
			var all sync.WaitGroup
			for i := range clients {
				all.Go(func() {
					r := rand.New(rand.NewPCG(uint64(i), 3))
					ticket := &ticket{account: a, task: job.Upscale2x}
					l.book.open(ticket)
					<-begin
					l.submit(t.Context(), ticket, 0, r)
				})
			}
			close(begin)
			all.Wait()
			want := map[int]int{http.StatusAccepted: c.accepted, c.refusal: clients - c.accepted}
			if diff := cmp.Diff(want, l.book.row.statuses); diff != "" {
				t.Error(diff)
			}
			verdictOnMoney(t, k, l)
		})
	}
}

// verdictOnMoney is the verdict on jobs that nobody works on.
func verdictOnMoney(t testing.TB, k *stack, l *load) {
	t.Helper()
	checkBooks(t, k, l.book)
	for _, complaint := range constraintsBroken(k.server) {
		if strings.Contains(complaint, `"accounts`) {
			l.book.problem("a constraint of the tables had to stop the program: %s", complaint)
		}
	}
	for _, p := range l.book.all() {
		t.Error(p)
	}
}

// Postgres stops at once while jobs are admitted. What a client was told of is
// there afterwards.
func TestAccepted_jobs_outlive_a_crash_of_Postgres(t *testing.T) {
	t.Parallel()
	k := newStack(t, size{serves: 1, ownCluster: true, settings: *unsafeCommits})
	k.begin(t, k.nodes()...)
	l, _ := k.client(t, point.Point)
	var accepted atomic.Int64
	enough := make(chan struct{})
	asking, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	for i := range 16 * 10 {
		l.book.accounts = append(l.book.accounts, k.open(t, fmt.Sprintf("client-%d", i), 10*point.Point))
	}
	for i, customers := range slices.Collect(slices.Chunk(l.book.accounts[1:], 10)) {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 6))
			for n := 0; asking.Err() == nil && n < 5*len(customers); n++ {
				ticket := &ticket{account: customers[n%len(customers)], task: job.Upscale2x, key: uuid.NewString()}
				l.book.open(ticket)
				if _, ok := l.submit(asking, ticket, 0, r); ok && accepted.Add(1) == 300 {
					close(enough)
				}
			}
		})
	}
	await(t, "300 jobs are accepted", enough)
	k.server.crash()
	stop()
	clients.Wait()
	if err := k.server.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	records, err := readRecords(t.Context(), k.sql)
	for errors.Is(err, syscall.ECONNRESET) || errors.Is(err, sql.ErrConnDone) {
		records, err = readRecords(t.Context(), k.sql)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.book.audit(records)
	lost := l.book.all()
	t.Logf("%d jobs were accepted, %d are wrong", accepted.Load(), len(lost))
	for _, p := range lost[:min(len(lost), 5)] {
		t.Error(p)
	}
}

// An API process dies when the database has charged and nothing is published
// yet. Its client asks nobody again: the charge must come back by itself.
func TestCharge_without_a_job_is_given_back(t *testing.T) {
	t.Parallel()
	k := newStack(t, size{serves: 2})
	k.begin(t, k.nodes()...)
	l, a := k.client(t, 10*point.Point)
	if err := loseAnAdmission(t, k, l, &ticket{account: a, task: job.Upscale2x}); err == nil {
		t.Fatal("the dead process answered")
	}
	var id job.ID
	if err := k.sql.QueryRowContext(t.Context(), `select id from jobs where account_id = $1`, a.id).Scan(&id); err != nil {
		t.Fatal(err)
	}
	took := k.awaitState(t, id, job.Failed, k.orphan+15*time.Second)
	t.Logf("the charge was given back after %s", took.Round(time.Millisecond))
	k.close(t, l)
}

// The same, but the client repeats its request under the same Idempotency-Key,
// as it is told to: it gets one job.
func TestRepeat_after_a_lost_answer_makes_one_job(t *testing.T) {
	t.Parallel()
	k := newStack(t, size{serves: 2, workers: 1, slots: 1})
	k.begin(t, k.nodes()...)
	l, a := k.client(t, 10*point.Point)
	ticket := &ticket{account: a, task: job.Upscale2x, key: uuid.NewString()}
	if err := loseAnAdmission(t, k, l, ticket); err == nil {
		t.Fatal("the dead process answered")
	}
	if _, ok := l.submit(t.Context(), ticket, 0, rand.New(rand.NewPCG(1, 7))); !ok {
		t.Fatalf("the repeat was refused: %s", l.book.row.byStatus())
	}
	k.close(t, l)
	var paid int
	err := k.sql.QueryRowContext(t.Context(), `select count(*) from jobs where account_id = $1 and not refunded`, a.id).Scan(&paid)
	if err != nil || paid > 1 {
		t.Errorf("%d jobs were paid for, want at most one (%v)", paid, err)
	}
}

// loseAnAdmission sends a request to the first API process, which dies when the
// database has carried the admission out.
func loseAnAdmission(t testing.TB, k *stack, l *load, ticket *ticket) error {
	t.Helper()
	n := k.serves[0]
	n.database.set(rules{after: func(ctx context.Context, s string) error {
		if !strings.Contains(s, admitting) {
			return nil
		}
		n.signal(syscall.SIGKILL)
		<-ctx.Done()
		return errCut
	}})
	only := &load{book: l.book, bases: l.bases[:1], http: l.http, small: l.small}
	l.book.open(ticket)
	l.book.blank(ticket)
	_, _, err := only.post(t.Context(), ticket, 0, l.small[0], 0, rand.New(rand.NewPCG(1, 8)))
	return err
}

// The network is cut when an admission is committed and its answer is under
// way: the process finds out by itself, and its client gets the job.
func TestAdmission_finds_out_whether_it_was_committed(t *testing.T) {
	t.Parallel()
	k := newStack(t, size{serves: 1, workers: 1, slots: 1})
	k.begin(t, k.nodes()...)
	l, a := k.client(t, 10*point.Point)
	var once sync.Once
	k.serves[0].database.set(rules{after: func(_ context.Context, s string) (err error) {
		if strings.Contains(s, admitting) {
			once.Do(func() { err = errCut })
		}
		return err
	}})
	l.ask(t, a)
	if diff := cmp.Diff(map[int]int{http.StatusAccepted: 1}, l.book.row.statuses); diff != "" {
		t.Error(diff)
	}
	k.close(t, l)
}
