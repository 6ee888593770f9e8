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

// Pieces of the statements that the tests below hold on to. A test that never
// meets its statement fails by saying so.
const (
	admitting  = "from admit("
	claiming   = "fence = fence + 1"
	completing = "set state = 'completed'"
	reading    = "finished_at from jobs where id = any"
	rereading  = "select id from jobs where id = any"
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
	took := k.awaitState(t, id, job.Completed, k.lease+k.ackWait+15*time.Second)
	t.Logf("the next worker had it after %s", took.Round(time.Millisecond))
	k.begin(t, k.serves[0])
	k.close(t, l)
}

// Many clients of one account at the same instant get as many jobs as the
// account may have, or can pay, and not one more.
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
		k.awaitState(t, id, job.Completed, k.lost+15*time.Second)
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
		k.begin(t, w)
	}
	k.awaitState(t, id, job.Failed, k.lease+k.ackWait+15*time.Second)
	if j := k.job(t, id); j.Fence != job.MaxClaims {
		t.Errorf("the picture was given up after %d claims, want %d", j.Fence, job.MaxClaims)
	}
	k.close(t, l)
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
	took := k.awaitState(t, id, job.Failed, k.orphan+10*time.Second)
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
