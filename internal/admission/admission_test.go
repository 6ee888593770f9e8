package admission_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/admission"
	"pictor/internal/fault"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/testkit/parts"
	"pictor/internal/testkit/pgtest"
)

func TestAdmit_stores_charges_and_queues(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	account := p.Account(t, 10*point.Point)
	admitted, err := p.Admission().Admit(t.Context(), parts.Request(t, account, job.Upscale4x, "cup.png"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := admitted.Balance, point.Amount(9850); got != want || p.Balance(t, account) != want {
		t.Errorf("balance %s in the answer and %s in the books, want %s", got, p.Balance(t, account), want)
	}
	if !p.Has(t, admitted.Job.ID.InputKey()) {
		t.Error("the input is not stored")
	}
	backlog, err := p.Queue.Backlog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[job.Task]uint64{job.RemoveBG: 0, job.Upscale2x: 0, job.Upscale4x: 1}, backlog); diff != "" {
		t.Error(diff)
	}
	p.CheckInvariants(t)
}

func TestAdmit_refuses_without_a_trace(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		balance point.Amount
		running int
		key     string
		want    fault.Code
	}{
		{"balance too small", 149, 0, "", fault.InsufficientBalance},
		{"balance too small, with a key", 149, 0, "k", fault.InsufficientBalance},
		{"sixth running job", 10 * point.Point, job.MaxRunning, "", fault.TooManyJobs},
		{"sixth running job, with a key", 10 * point.Point, job.MaxRunning, "k", fault.TooManyJobs},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := parts.New(t)
			account := p.Account(t, row.balance)
			for range row.running {
				p.Admit(t, account, job.RemoveBG)
			}
			before := p.Balance(t, account)
			r := parts.Request(t, account, job.Upscale4x, "cup.png")
			r.Key = row.key
			_, err := p.Admission().Admit(t.Context(), r)
			if !errors.Is(err, fault.New(row.want, "")) {
				t.Fatalf("got %v, want %s", err, row.want)
			}
			if got := p.Balance(t, account); got != before {
				t.Errorf("balance %s, want %s as before", got, before)
			}
			if n := inputs(t, p); n != row.running {
				t.Errorf("%d inputs are stored, want %d", n, row.running)
			}
			p.CheckInvariants(t)
		})
	}
}

func TestAdmit_takes_the_charge_back_when_the_queue_is_away(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	account := p.Account(t, point.Point)
	p.Server.Stop()
	_, err := p.Admission().Admit(t.Context(), parts.Request(t, account, job.RemoveBG, "cup.png"))
	if !errors.Is(err, fault.New(fault.QueueError, "")) {
		t.Fatalf("got %v, want %s", err, fault.QueueError)
	}
	if got := p.Balance(t, account); got != point.Point {
		t.Errorf("balance %s, want all of it back", got)
	}
	p.CheckInvariants(t)
}

// A client that gets 502 or 503 sends the same request again, with the same key.
func TestAdmit_releases_the_key_of_a_job_that_was_not_queued(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	account := p.Account(t, point.Point)
	r := parts.Request(t, account, job.RemoveBG, "cup.png")
	r.Key = "again"
	away := parts.New(t) // another queue, which is away
	away.Server.Stop()
	if _, err := admission.New(p.DB, p.Store, away.Queue, p.Log).Admit(t.Context(), r); !errors.Is(err, fault.New(fault.QueueError, "")) {
		t.Fatalf("got %v, want %s", err, fault.QueueError)
	}
	r.Body = bytes.NewReader(parts.Picture(t, "cup.png"))
	admitted, err := p.Admission().Admit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if admitted.Replayed {
		t.Error("the second request got the cancelled job of the first")
	}
	if got, want := p.Balance(t, account), point.Amount(900); got != want {
		t.Errorf("balance %s, want %s: charged once", got, want)
	}
	p.CheckInvariants(t)
}

func TestAdmit_repeats_cost_nothing(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	account := p.Account(t, point.Amount(100)) // enough for one, so that a repeat must not be looked at as a new request
	var wg sync.WaitGroup
	ids := make([]job.ID, 8)
	for i := range ids {
		r := parts.Request(t, account, job.RemoveBG, "cup.png")
		r.Key = "once"
		wg.Go(func() {
			admitted, err := p.Admission().Admit(t.Context(), r)
			if err != nil {
				t.Error(err)
			}
			ids[i] = admitted.Job.ID
			if got := admitted.Balance; got != 0 {
				t.Errorf("balance %s right after the charge, want 0", got)
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("job %s, want %s like the first", id, ids[0])
		}
	}
	if n := inputs(t, p); n != 1 {
		t.Errorf("%d inputs are stored, want 1", n)
	}
	p.CheckInvariants(t)
}

func TestAdmit_refuses_another_request_under_the_same_key(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	account := p.Account(t, point.Point)
	first := parts.Request(t, account, job.RemoveBG, "cup.png")
	first.Key = "once"
	if _, err := p.Admission().Admit(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]admission.Request{
		"another image": parts.Request(t, account, job.RemoveBG, "chelsea.png"),
		"another task":  parts.Request(t, account, job.Upscale2x, "cup.png"),
	} {
		other.Key = "once"
		if _, err := p.Admission().Admit(t.Context(), other); !errors.Is(err, fault.New(fault.InvalidRequest, "")) {
			t.Errorf("%s: got %v, want %s", name, err, fault.InvalidRequest)
		}
	}
	if got, want := p.Balance(t, account), point.Amount(900); got != want {
		t.Errorf("balance %s, want %s", got, want)
	}
}

// The API died between charge and queue, and its client repeats the request: the
// job of the first one is queued and stands.
func TestAdmit_queues_the_job_of_a_request_that_died(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	account := p.Account(t, point.Point)
	r := parts.Request(t, account, job.RemoveBG, "cup.png")
	r.Key = "once"
	first := charged(t, p, r)
	again, err := p.Admission().Admit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if !again.Replayed || again.Job.ID != first {
		t.Errorf("got job %s (replayed %v), want %s", again.Job.ID, again.Replayed, first)
	}
	if n, err := p.Queue.Messages(t.Context()); err != nil || n != 1 {
		t.Errorf("%d messages (%v), want 1", n, err)
	}
	orphans, err := p.DB.Orphans(t.Context(), -time.Hour, 10)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]job.ID(nil), orphans); diff != "" {
		t.Errorf("the sweeper would cancel it: %s", diff)
	}
	p.CheckInvariants(t)
}

// A repeat whose publish fails was answered with 502 "nothing was charged",
// although the first request's job was charged and perhaps running.
func TestAdmit_does_not_deny_the_charge_of_an_earlier_request(t *testing.T) {
	t.Parallel()
	p := parts.New(t)
	r := parts.Request(t, p.Account(t, point.Point), job.RemoveBG, "cup.png")
	r.Key = "once"
	charged(t, p, r)
	p.Server.Stop()
	_, err := p.Admission().Admit(t.Context(), r)
	if !errors.Is(err, fault.New(fault.Unavailable, "")) {
		t.Errorf("got %v, want %s", err, fault.Unavailable)
	}
}

// charged does what Admit does before it publishes.
func charged(t *testing.T, p *parts.Parts, r admission.Request) job.ID {
	t.Helper()
	admitted, err := p.DB.Admit(t.Context(), postgres.Admission{
		ID: pgtest.NewID(t), Account: r.Account, Task: r.Task, Input: r.Input, Key: r.Key, Fingerprint: r.Fingerprint(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return admitted.Job.ID
}

func inputs(t *testing.T, p *parts.Parts) int {
	t.Helper()
	n := 0
	if err := p.Store.List(t.Context(), "in/", func(string, time.Time, int64) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}
