package wait_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/fault"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/testkit/parts"
	"pictor/internal/wait"
)

// far is a wait that no test should use up.
const far = 60 * time.Second

func hub(t *testing.T, p *parts.Parts) *wait.Hub {
	t.Helper()
	h, err := wait.New(p.DB, p.Connect(t), p.Log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

type answer struct {
	state    job.State
	progress int
	err      error
}

// ask waits in the background until For has entered the waiting room.
func ask(t *testing.T, h *wait.Hub, ctx context.Context, account int64, id job.ID, d time.Duration) <-chan answer {
	t.Helper()
	before := h.Waiting()
	answers := make(chan answer, 1)
	go func() {
		a := answer{}
		var j *job.Job
		if j, a.err = h.For(ctx, account, id, d); j != nil {
			a.state = j.State
		}
		answers <- a
	}()
	for h.Waiting() == before {
		select {
		case a := <-answers:
			answers <- a
			return answers
		case <-time.After(time.Millisecond):
		}
	}
	return answers
}

func complete(t *testing.T, p *parts.Parts, id job.ID) {
	t.Helper()
	j, verdict, err := p.DB.Claim(t.Context(), id, time.Minute)
	if err != nil || verdict != postgres.Claimed {
		t.Fatal(verdict, err)
	}
	finish(t, p, j)
}

// finish completes a job that was claimed. It may be called beside the test.
func finish(t *testing.T, p *parts.Parts, j job.Job) {
	t.Helper()
	held, err := p.DB.Complete(t.Context(), j.ID, j.Fence, postgres.Result{Type: job.PNG, Size: 1, Token: string(j.ID)})
	if err != nil || !held {
		t.Errorf("complete job %s: %t, %v", j.ID, held, err)
	}
}

func TestFor_answers_when_the_job_is_final(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	h := hub(t, p)
	account := p.Account(t, point.Point)
	j := p.Admit(t, account, job.RemoveBG)
	answers := ask(t, h, t.Context(), account, j.ID, far)
	complete(t, p, j.ID)
	if err := p.Queue.Finished(j.ID); err != nil {
		t.Fatal(err)
	}
	got := <-answers
	if got.err != nil || got.state != job.Completed {
		t.Errorf("got %s, %v; want completed", got.state, got.err)
	}
	if h.Waiting() != 0 {
		t.Errorf("%d still wait", h.Waiting())
	}
}

// A wake-up is only a hint: broadcasts are at most once, and are lost with the
// connection.
func TestFor_notices_a_job_whose_wake_up_was_lost(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	h := hub(t, p)
	account := p.Account(t, point.Point)
	j := p.Admit(t, account, job.RemoveBG)
	answers := ask(t, h, t.Context(), account, j.ID, far)
	complete(t, p, j.ID) // and nobody says so
	if got := <-answers; got.err != nil || got.state != job.Completed {
		t.Errorf("got %s, %v; want completed", got.state, got.err)
	}
}

func TestFor_answers_with_the_job_as_it_is(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	account := p.Account(t, point.Point)
	j := p.Admit(t, account, job.RemoveBG)
	for _, row := range []struct {
		name string
		ask  func(h *wait.Hub) answer
	}{
		{"at once without a wait", func(h *wait.Hub) answer {
			return <-ask(t, h, t.Context(), account, j.ID, 0)
		}},
		{"when the time is up", func(h *wait.Hub) answer {
			return <-ask(t, h, t.Context(), account, j.ID, 50*time.Millisecond)
		}},
		{"when the process stops", func(h *wait.Hub) answer {
			answers := ask(t, h, t.Context(), account, j.ID, far)
			h.Close()
			return <-answers
		}},
		{"after the process began to stop", func(h *wait.Hub) answer {
			h.Close()
			return <-ask(t, h, t.Context(), account, j.ID, far)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := row.ask(hub(t, p))
			if got.err != nil || got.state != job.Queued {
				t.Errorf("got %s, %v; want queued", got.state, got.err)
			}
		})
	}
}

func TestFor_ends_with_the_client(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	h := hub(t, p)
	account := p.Account(t, point.Point)
	j := p.Admit(t, account, job.RemoveBG)
	ctx, leave := context.WithCancel(t.Context())
	answers := ask(t, h, ctx, account, j.ID, far)
	leave()
	if got := <-answers; !errors.Is(got.err, context.Canceled) {
		t.Errorf("got %v, want %v", got.err, context.Canceled)
	}
}

func TestFor_does_not_tell_another_account_s_job_from_none(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	h := hub(t, p)
	theirs := p.Admit(t, p.Account(t, point.Point), job.RemoveBG)
	mine := p.Account(t, point.Point)
	_, other := h.For(t.Context(), mine, theirs.ID, far)
	_, none := h.For(t.Context(), mine, "0190c3b0-0000-7000-8000-000000000000", far)
	if !errors.Is(other, fault.New(fault.NotFound, "")) {
		t.Errorf("got %v, want %s", other, fault.NotFound)
	}
	if diff := cmp.Diff(fault.From(none).Message, fault.From(other).Message); diff != "" {
		t.Errorf("another account's job (+) and none (-): %s", diff)
	}
}

func TestFor_wakes_everybody_of_one_job(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	h := hub(t, p)
	account := p.Account(t, point.Point)
	j := p.Admit(t, account, job.RemoveBG)
	var all []<-chan answer
	for range 50 {
		all = append(all, ask(t, h, t.Context(), account, j.ID, far))
	}
	complete(t, p, j.ID)
	if err := p.Queue.Finished(j.ID); err != nil {
		t.Fatal(err)
	}
	for _, answers := range all {
		if got := <-answers; got.err != nil || got.state != job.Completed {
			t.Errorf("got %s, %v; want completed", got.state, got.err)
		}
	}
}
