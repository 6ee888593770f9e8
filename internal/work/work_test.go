package work_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/admission"
	"pictor/internal/blob"
	"pictor/internal/job"
	"pictor/internal/onnx"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/render"
	"pictor/internal/testkit/parts"
	"pictor/internal/vips"
	"pictor/internal/work"
)

const patience = time.Minute

// config suits a test: short leases, and a heartbeat well within them.
func config(t *testing.T) work.Config {
	return work.Config{
		Name: t.Name(), Tasks: job.Tasks(), Slots: 2, Dir: t.TempDir(),
		Lease: 5 * time.Second, Beat: 50 * time.Millisecond, Grace: patience,
	}
}

// start runs a worker of its own connection until stop, or the end of the test.
func start(t *testing.T, p *parts.Parts, c work.Config) (stop func()) {
	t.Helper()
	engine, err := onnx.Open(onnx.Config{Engine: onnx.Auto})
	if err != nil {
		t.Fatal(err)
	}
	renderer, err := render.New(render.Config{Engine: engine, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w, done := work.New(c, p.DB, p.Connect(t), p.Store, renderer, p.Log), make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
		_ = renderer.Close()
		_ = engine.Close()
	})
	t.Cleanup(stop)
	return stop
}

// finished waits for the broadcast that a job is final, then reads it.
func finished(t *testing.T, p *parts.Parts) (await func(job.ID) job.Job) {
	t.Helper()
	ids := make(chan job.ID, 100)
	stop, err := p.Queue.OnFinished(func(id job.ID) { ids <- id })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	if err := p.Queue.Flush(); err != nil {
		t.Fatal(err)
	}
	seen := map[job.ID]bool{}
	return func(want job.ID) job.Job {
		t.Helper()
		for deadline := time.After(patience); !seen[want]; {
			select {
			case id := <-ids:
				seen[id] = true
			case <-deadline:
				t.Fatalf("job %s did not finish: %+v", want, p.Job(t, want))
			}
		}
		return p.Job(t, want)
	}
}

func TestRun_completes_every_task(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	account := p.Account(t, point.Point)
	await := finished(t, p)
	start(t, p, config(t))
	for task, want := range map[job.Task][2]int{job.RemoveBG: {240, 240}, job.Upscale2x: {480, 480}, job.Upscale4x: {960, 960}} {
		got := await(p.Admit(t, account, task).ID)
		if got.State != job.Completed || got.Progress != 100 || got.Refunded || len(got.ResultToken) < 32 {
			t.Errorf("%s: %+v", task, got)
			continue
		}
		object, err := p.Store.Open(t.Context(), got.ResultKey())
		if err != nil {
			t.Errorf("%s: %v", task, err)
			continue
		}
		b := make([]byte, object.Size)
		if _, err := object.Read(b); err != nil {
			t.Error(err)
		}
		_ = object.Close()
		h, err := vips.ReadHeader(b)
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, [2]int{h.Width, h.Height}); diff != "" {
			t.Errorf("%s: %s", task, diff)
		}
	}
	if got, want := p.Balance(t, account), point.Amount(650); got != want {
		t.Errorf("balance %s, want %s", got, want)
	}
	p.CheckInvariants(t)
}

func TestRun_fails_and_refunds_a_picture_that_cannot_be_decoded(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	account := p.Account(t, point.Point)
	await := finished(t, p)
	j := p.Admit(t, account, job.RemoveBG)
	damage(t, p, j, func(b []byte) []byte { clear(b[len(b)/3:]); return b })
	start(t, p, config(t))
	got := await(j.ID)
	if got.State != job.Failed || !got.Refunded || got.Message == "" {
		t.Errorf("got %+v, want failed and refunded with a message", got)
	}
	if balance := p.Balance(t, account); balance != point.Point {
		t.Errorf("balance %s, want all of it back", balance)
	}
	p.CheckInvariants(t)
}

// damage replaces the stored input of a job, keeping its size.
func damage(t *testing.T, p *parts.Parts, j job.Job, change func([]byte) []byte) {
	t.Helper()
	object, err := p.Store.Open(t.Context(), j.ID.InputKey())
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, object.Size)
	if _, err := object.Read(b); err != nil {
		t.Fatal(err)
	}
	_ = object.Close()
	put(t, p.Store, j.ID.InputKey(), change(b))
}

// What is not the picture's fault is tried again, and again, and then given up.
func TestRun_gives_up_a_job_whose_input_is_gone(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	account := p.Account(t, point.Point)
	await := finished(t, p)
	j := p.Admit(t, account, job.RemoveBG)
	if err := p.Store.Delete(t.Context(), j.ID.InputKey()); err != nil {
		t.Fatal(err)
	}
	start(t, p, config(t))
	got := await(j.ID)
	if got.State != job.Failed || !got.Refunded || got.Fence != job.MaxClaims {
		t.Errorf("got %+v, want failed and refunded after %d claims", got, job.MaxClaims)
	}
	p.CheckInvariants(t)
}

// A job was given up after one passing error, because the times that workers
// gave it back when they were stopped had used up its attempts.
func TestRun_tries_again_after_an_error_however_often_workers_were_stopped(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	account := p.Account(t, point.Point)
	await := finished(t, p)
	j := p.Admit(t, account, job.RemoveBG)
	for range job.MaxClaims {
		claimed, verdict, err := p.DB.Claim(t.Context(), j.ID, time.Minute)
		if err != nil || verdict != postgres.Claimed {
			t.Fatal(verdict, err)
		}
		if held, err := p.DB.GiveBack(t.Context(), j.ID, claimed.Fence); err != nil || !held {
			t.Fatal(held, err)
		}
	}
	object, err := p.Store.Open(t.Context(), j.ID.InputKey())
	if err != nil {
		t.Fatal(err)
	}
	input, err := io.ReadAll(object)
	if err != nil {
		t.Fatal(err)
	}
	_ = object.Close()
	if err := p.Store.Delete(t.Context(), j.ID.InputKey()); err != nil {
		t.Fatal(err)
	}
	var outcomes []work.Outcome
	c := config(t)
	c.Slots = 1 // the worker asks for no other job before Ended returns
	c.Ended = func(_ context.Context, _ job.Task, o work.Outcome, _ time.Duration) {
		if outcomes = append(outcomes, o); o == work.Returned {
			put(t, p.Store, j.ID.InputKey(), input)
		}
	}
	stop := start(t, p, c)
	got := await(j.ID)
	stop()
	if diff := cmp.Diff([]work.Outcome{work.Returned, work.Completed}, outcomes); diff != "" {
		t.Error(diff)
	}
	if got.State != job.Completed || got.Fence != job.MaxClaims+2 || got.Lapses != 1 {
		t.Errorf("got %+v, want completed after one error", got)
	}
	p.CheckInvariants(t)
}

// A job whose workers all died is refunded by the claim that finds it. Nobody
// heard of it: its waiters slept on, and no metric counted the refund.
func TestRun_tells_of_a_job_that_it_gives_up_when_claiming(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	account := p.Account(t, point.Point)
	await := finished(t, p)
	j := p.Admit(t, account, job.Upscale2x)
	for range job.MaxClaims {
		if _, verdict, err := p.DB.Claim(t.Context(), j.ID, time.Microsecond); err != nil || verdict != postgres.Claimed {
			t.Fatal(verdict, err)
		}
	}
	buried := make(chan job.Task, 1)
	c := config(t)
	c.Buried = func(t job.Task) { buried <- t }
	stop := start(t, p, c)
	if got := await(j.ID); got.State != job.Failed || !got.Refunded {
		t.Errorf("got %+v, want failed and refunded", got)
	}
	stop()
	close(buried)
	if diff := cmp.Diff(job.Upscale2x, <-buried); diff != "" {
		t.Error(diff)
	}
	p.CheckInvariants(t)
}

// A picture that kills its process takes the pictures beside it along, so a job
// on its last attempt waits until it is alone, and nobody comes in meanwhile.
func TestRun_makes_a_last_attempt_alone(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	await := finished(t, p)
	busy, err := p.Admission().Admit(t.Context(), large(t, p.Account(t, point.Point)))
	if err != nil {
		t.Fatal(err)
	}
	account := p.Account(t, point.Point)
	var last []job.ID
	for range 3 {
		j := p.Admit(t, account, job.RemoveBG)
		for range job.MaxClaims - 1 {
			claimed, verdict, err := p.DB.Claim(t.Context(), j.ID, time.Minute)
			if err != nil || verdict != postgres.Claimed {
				t.Fatal(verdict, err)
			}
			if held, err := p.DB.Lapse(t.Context(), j.ID, claimed.Fence); err != nil || !held {
				t.Fatal(held, err)
			}
		}
		last = append(last, j.ID)
	}
	type span struct{ from, to time.Time }
	spans := make(chan span, len(last)+1)
	c := config(t)
	c.Slots = 3
	c.Ended = func(_ context.Context, _ job.Task, _ work.Outcome, took time.Duration) {
		now := time.Now()
		spans <- span{now.Add(-took), now}
	}
	stop := start(t, p, c)
	for _, id := range append(last, busy.Job.ID) {
		if got := await(id); got.State != job.Completed {
			t.Errorf("got %+v, want completed", got)
		}
	}
	stop()
	close(spans)
	var all []span
	for s := range spans {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b span) int { return a.from.Compare(b.from) })
	for i := range len(all) - 1 {
		if all[i+1].from.Before(all[i].to) {
			t.Errorf("attempt %d began %s before the one before it ended", i+2, all[i].to.Sub(all[i+1].from))
		}
	}
	p.CheckInvariants(t)
}

// The message outlives the job: it was cancelled, or never committed.
func TestRun_drops_messages_without_a_job_to_do(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	account := p.Account(t, point.Point)
	await := finished(t, p)
	cancelled := p.Admit(t, account, job.RemoveBG)
	claimed, _, err := p.DB.Claim(t.Context(), cancelled.ID, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if held, err := p.DB.Fail(t.Context(), claimed.ID, claimed.Fence, "over"); err != nil || !held {
		t.Fatal(held, err)
	}
	for i := range 3 {
		if err := p.Queue.Publish(t.Context(), job.RemoveBG, job.ID(fmt.Sprintf("0190c3b0-0000-7000-8000-%012d", i)), 0); err != nil {
			t.Fatal(err)
		}
		if err := p.Queue.Publish(t.Context(), job.RemoveBG, cancelled.ID, int64(100+i)); err != nil {
			t.Fatal(err)
		}
	}
	// A payload that is no id at all was delivered again for ever: the database
	// refused to look for it, which counted as trouble of the database.
	for i, payload := range []job.ID{"no id at all", ""} {
		if err := p.Queue.Publish(t.Context(), job.RemoveBG, payload, int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	stop := start(t, p, config(t))
	last := p.Admit(t, account, job.RemoveBG)
	if got := await(last.ID); got.State != job.Completed {
		t.Errorf("got %+v, want completed", got)
	}
	if got := p.Job(t, cancelled.ID); got.State != job.Failed || got.Fence != claimed.Fence {
		t.Errorf("the final job became %+v", got)
	}
	stop()
	for deadline := time.Now().Add(patience); ; { // acknowledgements are on their way
		n, err := p.Queue.Messages(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d messages are left, want none", n)
		}
	}
	p.CheckInvariants(t)
}

// A worker that was paused past its lease wakes up and writes. Nothing of it may
// show: the job belongs to whoever claimed it since.
func TestRun_changes_nothing_after_its_fence_was_lost(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	account := p.Account(t, point.Point)
	j := p.Admit(t, account, job.RemoveBG)
	old, verdict, err := p.DB.Claim(t.Context(), j.ID, time.Microsecond) // its lease ends at once
	if err != nil || verdict != postgres.Claimed {
		t.Fatal(verdict, err)
	}
	await := finished(t, p)
	start(t, p, config(t))
	got := await(j.ID)
	if got.State != job.Completed || got.Fence != old.Fence+1 {
		t.Fatalf("got %+v, want completed under fence %d", got, old.Fence+1)
	}
	for name, write := range map[string]func() (bool, error){
		"progress": func() (bool, error) { return p.DB.Progress(t.Context(), j.ID, old.Fence, 50, "", time.Minute) },
		"complete": func() (bool, error) {
			return p.DB.Complete(t.Context(), j.ID, old.Fence, postgres.Result{Type: job.PNG, Size: 1, Token: "stale"})
		},
		"fail":      func() (bool, error) { return p.DB.Fail(t.Context(), j.ID, old.Fence, "stale") },
		"give back": func() (bool, error) { return p.DB.GiveBack(t.Context(), j.ID, old.Fence) },
	} {
		if held, err := write(); err != nil || held {
			t.Errorf("%s under the lost fence: %v, %v", name, held, err)
		}
	}
	if diff := cmp.Diff(got, p.Job(t, j.ID)); diff != "" {
		t.Error(diff)
	}
	p.CheckInvariants(t)
}

// On SIGTERM a picture that does not end within the grace goes back to the
// queue at once, and the next worker need not wait for the lease to end.
func TestRun_gives_a_long_picture_back_when_it_is_stopped(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	account := p.Account(t, point.Point)
	await := finished(t, p)
	c := config(t)
	c.Lease, c.Grace, c.Slots = time.Hour, 0, 1
	stop := start(t, p, c)
	admitted, err := p.Admission().Admit(t.Context(), large(t, account))
	if err != nil {
		t.Fatal(err)
	}
	for p.Job(t, admitted.Job.ID).State != job.Processing {
		if t.Context().Err() != nil {
			t.Fatal("never claimed")
		}
	}
	stop()
	back := p.Job(t, admitted.Job.ID)
	if back.State != job.Processing {
		t.Fatalf("got %+v, want it given back", back)
	}
	second := config(t)
	second.Name, second.Lease = "second", time.Hour
	start(t, p, second)
	if got := await(back.ID); got.State != job.Completed || got.Fence != 2 {
		t.Errorf("got %+v, want completed under fence 2", got)
	}
	p.CheckInvariants(t)
}

// large asks for seconds of work.
func large(t *testing.T, account int64) admission.Request {
	t.Helper()
	const side = 1200
	row, b := make([]byte, side), new(bytes.Buffer)
	picture, err := vips.NewPNGWriter(b, side, side, 1, vips.PNGOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for y := range side {
		for x := range row {
			row[x] = byte(x ^ y)
		}
		if err := picture.WriteRows(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := picture.Close(); err != nil {
		t.Fatal(err)
	}
	return admission.Request{
		Account: account, Task: job.Upscale4x,
		Input:  job.Image{Type: job.PNG, Size: int64(b.Len()), Width: side, Height: side},
		SHA256: sha256.Sum256(b.Bytes()), Body: bytes.NewReader(b.Bytes()),
	}
}

func put(t *testing.T, store *blob.Store, key string, b []byte) {
	t.Helper()
	if err := store.Put(t.Context(), key, job.PNG, bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
}
