package sweep_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/bus"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/sweep"
	"pictor/internal/testkit/parts"
	"pictor/internal/testkit/pgtest"
)

// never is an age that nothing in a test reaches; at once is one that
// everything has.
const (
	never  = time.Hour
	atOnce = -time.Hour
)

// idle acts on nothing, so that a test sets only the age that it is about.
func idle() sweep.Config {
	return sweep.Config{
		Every: time.Second, StuckAfter: never, ResultTTL: never,
		OrphanAfter: never, LostAfter: never, GarbageAfter: never, GarbageEvery: never,
	}
}

func once(t *testing.T, p *parts.Parts, c sweep.Config) sweep.Counts {
	t.Helper()
	counts, err := sweep.New(c, p.DB, p.Queue, p.Store, p.Log).Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

func backlog(t *testing.T, b *bus.Bus) (n uint64) {
	t.Helper()
	tasks, err := b.Backlog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, waiting := range tasks {
		n += waiting
	}
	return n
}

func finish(t *testing.T, p *parts.Parts, id job.ID) job.Job {
	t.Helper()
	j, verdict, err := p.DB.Claim(t.Context(), id, time.Minute)
	if err != nil || verdict != postgres.Claimed {
		t.Fatal(verdict, err)
	}
	held, err := p.DB.Complete(t.Context(), id, j.Fence, postgres.Result{Type: job.PNG, Size: 1, Token: string(id)})
	if err != nil || !held {
		t.Fatal(held, err)
	}
	return p.Job(t, id)
}

func TestOnce_leaves_a_healthy_system_alone(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	j := p.Admit(t, p.Account(t, point.Point), job.RemoveBG)
	if diff := cmp.Diff(sweep.Counts{}, once(t, p, sweep.Defaults())); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(j, p.Job(t, j.ID)); diff != "" {
		t.Error(diff)
	}
}

// The API died between the charge and the queue. No client was told of the job.
func TestOnce_cancels_and_refunds_orphans(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	account := p.Account(t, point.Point)
	admitted, err := p.DB.Admit(t.Context(), pgtest.Admission(t, account))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sweep.Counts{}, once(t, p, idle())); diff != "" {
		t.Errorf("a young orphan may still be published: %s", diff)
	}
	c := idle()
	c.OrphanAfter = atOnce
	if diff := cmp.Diff(sweep.Counts{Orphans: 1}, once(t, p, c), ignoreInputs); diff != "" {
		t.Error(diff)
	}
	if got := p.Job(t, admitted.Job.ID); got.State != job.Failed || !got.Refunded {
		t.Errorf("got %+v, want failed and refunded", got)
	}
	if got := p.Balance(t, account); got != point.Point {
		t.Errorf("balance %s, want all of it back", got)
	}
	p.CheckInvariants(t)
}

// ignoreInputs leaves out the inputs that a job's end makes ready for deletion
// in the same round.
var ignoreInputs = cmp.FilterPath(func(path cmp.Path) bool { return path.String() == "Inputs" }, cmp.Ignore())

// The store of the queue was wiped with jobs in it.
func TestOnce_publishes_lost_jobs_again(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	account := p.Account(t, point.Point)
	j := p.Admit(t, account, job.RemoveBG)
	other := parts.New(t)
	p.Queue = other.Queue // a queue that has never heard of the job
	c := idle()
	c.LostAfter = atOnce
	if diff := cmp.Diff(sweep.Counts{Republished: 1}, once(t, p, c)); diff != "" {
		t.Error(diff)
	}
	if n := backlog(t, p.Queue); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
	if got := p.Job(t, j.ID); got.State != job.Queued {
		t.Errorf("the job became %s", got.State)
	}
}

// A message that was not lost must not be doubled by the sweeper.
func TestOnce_publishes_under_the_id_that_the_message_had(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	p.Admit(t, p.Account(t, point.Point), job.RemoveBG)
	c := idle()
	c.LostAfter = atOnce
	for range 3 {
		once(t, p, c)
	}
	if n := backlog(t, p.Queue); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
}

// JetStream remembers a message id for two minutes. In a queue of hours, every
// waiting job got another copy of its message every two minutes.
func TestOnce_leaves_jobs_alone_whose_turn_has_not_come(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	for _, task := range job.Tasks() {
		account := p.Account(t, point.Point)
		for range 3 {
			p.Admit(t, account, task)
		}
	}
	c := idle()
	c.LostAfter = 0
	for range 20 {
		if diff := cmp.Diff(sweep.Counts{}, once(t, p, c)); diff != "" {
			t.Fatal(diff)
		}
	}

	// Workers are given everything and die of it: now it may be lost.
	ctx, stop := context.WithCancel(t.Context())
	taken, done := make(chan bus.Message, 9), make(chan struct{})
	go func() {
		defer close(done)
		p.Connect(t).Consume(ctx, job.Tasks(), 9, func(m bus.Message) { taken <- m })
	}()
	for range 9 {
		<-taken
	}
	stop()
	<-done
	if diff := cmp.Diff(sweep.Counts{Republished: 9}, once(t, p, c)); diff != "" {
		t.Error(diff)
	}
}

func TestOnce_fails_and_refunds_stuck_jobs(t *testing.T) {
	t.Parallel()
	for name, claimed := range map[string]bool{"queued without a worker": false, "processing without a heartbeat": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := parts.New(t)
			account := p.Account(t, point.Point)
			j := p.Admit(t, account, job.RemoveBG)
			if claimed {
				if _, verdict, err := p.DB.Claim(t.Context(), j.ID, time.Minute); err != nil || verdict != postgres.Claimed {
					t.Fatal(verdict, err)
				}
			}
			woken := make(chan job.ID, 1)
			stop, err := p.Queue.OnFinished(func(id job.ID) { woken <- id })
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			c := idle()
			c.StuckAfter = atOnce
			if diff := cmp.Diff(sweep.Counts{Stuck: 1}, once(t, p, c), ignoreInputs); diff != "" {
				t.Error(diff)
			}
			got := p.Job(t, j.ID)
			if got.State != job.Failed || !got.Refunded || got.Message == "" {
				t.Errorf("got %+v, want failed and refunded with a message", got)
			}
			if balance := p.Balance(t, account); balance != point.Point {
				t.Errorf("balance %s, want all of it back", balance)
			}
			if id := <-woken; id != j.ID {
				t.Errorf("woke the waiters of %s, want %s", id, j.ID)
			}
			p.CheckInvariants(t)
		})
	}
}

// A queue that is long is no reason to give up: workers live.
func TestOnce_keeps_queued_jobs_while_a_worker_of_their_task_lives(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	account := p.Account(t, point.Point)
	old := p.Admit(t, account, job.RemoveBG)
	none := p.Admit(t, account, job.Upscale2x)
	c := idle()
	c.StuckAfter = time.Second
	for p.Job(t, none.ID).State == job.Queued { // until both are older than a second
		if err := p.DB.Alive(t.Context(), "worker", []job.Task{job.RemoveBG}); err != nil {
			t.Fatal(err)
		}
		once(t, p, c)
	}
	if got := p.Job(t, old.ID); got.State != job.Queued {
		t.Errorf("the job with a living worker became %s", got.State)
	}
}

func TestOnce_deletes_expired_results_and_inputs(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	j := p.Admit(t, p.Account(t, point.Point), job.RemoveBG)
	j = finish(t, p, j.ID)
	put(t, p, j.ResultKey())
	if diff := cmp.Diff(sweep.Counts{Inputs: 1}, once(t, p, idle())); diff != "" {
		t.Error(diff)
	}
	if p.Has(t, j.ID.InputKey()) || !p.Has(t, j.ResultKey()) {
		t.Error("want the input deleted and the result kept")
	}
	c := idle()
	c.ResultTTL = atOnce
	if diff := cmp.Diff(sweep.Counts{Expired: 1}, once(t, p, c)); diff != "" {
		t.Error(diff)
	}
	if p.Has(t, j.ResultKey()) {
		t.Error("the expired result is still stored")
	}
	if _, err := p.DB.JobByToken(t.Context(), j.ResultToken); err == nil {
		t.Error("the expired result is still public")
	}
}

func TestOnce_deletes_objects_without_an_owner(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	queued := p.Admit(t, p.Account(t, point.Point), job.RemoveBG)
	done := p.Admit(t, p.Account(t, point.Point), job.RemoveBG)
	done = finish(t, p, done.ID)
	nobody := pgtest.NewID(t)
	kept := []string{queued.ID.InputKey(), done.ResultKey()}
	garbage := []string{nobody.InputKey(), nobody.ResultKey(1), done.ID.ResultKey(done.Fence + 1), "in/no-uuid", "probe/left"}
	for _, key := range append(garbage, done.ResultKey()) {
		put(t, p, key)
	}
	c := idle()
	if diff := cmp.Diff(sweep.Counts{}, once(t, p, c), ignoreInputs); diff != "" {
		t.Errorf("young objects may belong to a job that is on its way: %s", diff)
	}
	c.GarbageAfter = atOnce
	if diff := cmp.Diff(sweep.Counts{Garbage: len(garbage)}, once(t, p, c), ignoreInputs); diff != "" {
		t.Error(diff)
	}
	for _, key := range kept {
		if !p.Has(t, key) {
			t.Errorf("%s was deleted although a job owns it", key)
		}
	}
	for _, key := range garbage {
		if p.Has(t, key) {
			t.Errorf("%s is still stored", key)
		}
	}
}

// The queue is away: the other steps go on, and the error says so.
func TestOnce_goes_on_without_the_queue(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	account := p.Account(t, point.Point)
	if _, err := p.DB.Admit(t.Context(), pgtest.Admission(t, account)); err != nil {
		t.Fatal(err)
	}
	p.Server.Stop()
	c := idle()
	c.OrphanAfter = atOnce
	counts, err := sweep.New(c, p.DB, p.Queue, p.Store, p.Log).Once(t.Context())
	if err == nil {
		t.Error("want an error that names the queue")
	}
	if counts.Orphans != 1 {
		t.Errorf("%d orphans were cancelled, want 1", counts.Orphans)
	}
	p.CheckInvariants(t)
}

func put(t *testing.T, p *parts.Parts, key string) {
	t.Helper()
	if err := p.Store.Put(t.Context(), key, job.PNG, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
}
