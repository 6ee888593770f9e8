package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/apikey"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/testkit/contract"
	"pictor/internal/testkit/pgtest"
)

// 64 clients want jobs at the same instant, of one account or of 20. Every
// request is answered, each account gets exactly as many jobs as it may run, or
// can pay, and the books hold what its clients were told.
//
// A machine that is too busy to queue a job in time answers 502 and gives the
// charge back. Its slot was taken meanwhile, and others were refused for it; so
// when the rush is over each account asks until it is refused.
func TestLimits_are_exact_under_a_rush(t *testing.T) {
	t.Parallel()
	s := start(t, 0)
	const clients, payable = 64, 3
	client := &http.Client{Transport: contract.NewTransport(t, newLines(t, clients))}
	for _, row := range []struct {
		name     string
		accounts int
		balance  point.Amount
		accepted int
		code     string // of every refusal
	}{
		{"running jobs of one account", 1, 100 * point.Point, job.MaxRunning, "429 too_many_jobs"},
		{"running jobs of twenty accounts", 20, 100 * point.Point, job.MaxRunning, "429 too_many_jobs"},
		{"balance of one account", 1, payable*job.Upscale2x.Cost() + 50, payable, "402 insufficient_balance"},
		{"balance of twenty accounts", 20, payable*job.Upscale2x.Cost() + 50, payable, "402 insufficient_balance"},
	} {
		t.Run(row.name, func(t *testing.T) {
			customers := make([]*customer, row.accounts)
			for i := range customers {
				account := pgtest.NewAccount(t, s.db, row.balance)
				customers[i] = &customer{base: s.api.BaseURL, account: account.ID, key: pgtest.NewKey(t, s.db, account.ID), http: client, answers: make(map[string]int), accepted: make(map[job.ID]bool)}
			}
			begin := make(chan struct{})
			var all sync.WaitGroup
			for n := range clients {
				all.Go(func() {
					ctx := onLine(context.WithoutCancel(t.Context()), n)
					<-begin
					for _, i := range rand.Perm(len(customers)) {
						customers[i].upscale(ctx)
					}
				})
			}
			close(begin)
			all.Wait()
			for i, c := range customers {
				refused := c.answers[row.code]
				for tries := 0; c.answers[row.code] == refused && tries < clients; tries++ {
					c.upscale(context.WithoutCancel(t.Context()))
				}
				if c.answers[row.code] == refused || len(c.accepted) != row.accepted {
					t.Errorf("account %d: %d requests were accepted, want %d: %v", i, len(c.accepted), row.accepted, c.answers)
				}
				c.agrees(t, s, row.balance, row.code)
			}
			s.checkInvariants(t)
		})
	}
}

// agrees holds what the customer was told against the books.
func (c *customer) agrees(t *testing.T, s *stack, balance point.Amount, refusal string) {
	t.Helper()
	accepted, unqueued := len(c.accepted), c.answers["502 queue_error"]
	for answer, n := range c.answers {
		if answer != "202" && answer != "502 queue_error" && answer != refusal {
			t.Errorf("%d requests got: %s", n, answer)
		}
	}
	now, err := s.db.AccountByID(t.Context(), c.account)
	must(t, err)
	spent := point.Amount(accepted) * job.Upscale2x.Cost()
	if now.Running != accepted || now.Balance != balance-spent {
		t.Errorf("the account runs %d jobs and has %s left, want %d and %s", now.Running, now.Balance, accepted, balance-spent)
	}
	jobs, err := s.db.Jobs(t.Context(), c.account, 1000)
	must(t, err)
	running := make(map[job.ID]bool)
	for _, j := range jobs {
		if !j.State.Final() {
			running[j.ID] = true
		}
	}
	if diff := cmp.Diff(c.accepted, running); diff != "" {
		t.Errorf("the jobs that run (+) and those that were accepted (-): %s", diff)
	}
	if len(jobs) != accepted+unqueued {
		t.Errorf("%d jobs were made, want %d that run and %d that were not queued", len(jobs), accepted, unqueued)
	}
	if rows := amounts(t, s.db, c.account); len(rows) != 1+accepted+2*unqueued {
		t.Errorf("the ledger is %v, want a credit, %d charges, and %d with their refund", rows, accepted, unqueued)
	}
}

// lines gives each client a connection of its own. Clients that share theirs
// open more than they need, for a request takes whichever is free first; the
// server ends one that stays silent for 10 s, and on a busy machine that once
// cut off the request that was about to use it.
type lines []http.RoundTripper

func newLines(t *testing.T, n int) lines {
	l := make(lines, n)
	for i := range l {
		transport := new(http.Transport)
		t.Cleanup(transport.CloseIdleConnections)
		l[i] = transport
	}
	return l
}

type lineKey struct{}

func onLine(ctx context.Context, n int) context.Context { return context.WithValue(ctx, lineKey{}, n) }

// RoundTrip is http.RoundTripper.
func (l lines) RoundTrip(r *http.Request) (*http.Response, error) {
	n, _ := r.Context().Value(lineKey{}).(int)
	return l[n].RoundTrip(r)
}

// customer is a plain HTTP client with one key, which keeps a book of its
// answers and repeats nothing.
type customer struct {
	base    string
	account int64
	key     apikey.Key
	http    *http.Client

	mu       sync.Mutex
	answers  map[string]int // by status, with the code of a refusal; an error in place of an answer
	accepted map[job.ID]bool
}

func (c *customer) upscale(ctx context.Context) {
	answer, id := c.ask(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[answer]++
	if answer == "202" {
		c.accepted[id] = true
	}
}

func (c *customer) ask(ctx context.Context) (answer string, id job.ID) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/upscale?scale=2", bytes.NewReader(tiny()))
	if err != nil {
		return err.Error(), ""
	}
	q.Header.Set("Authorization", "Bearer "+string(c.key))
	q.Header.Set("Content-Type", job.PNG)
	response, err := c.http.Do(q)
	if err != nil {
		return err.Error(), ""
	}
	defer response.Body.Close()
	var body struct {
		ID    job.ID
		Error struct{ Code string }
	}
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
		return err.Error(), ""
	}
	answer = fmt.Sprint(response.StatusCode)
	if body.Error.Code != "" {
		answer += " " + body.Error.Code
	}
	return answer, body.ID
}

// tiny is a picture that costs little to send.
func tiny() []byte {
	var b bytes.Buffer
	_ = png.Encode(&b, image.NewGray(image.Rect(0, 0, 32, 32))) // a buffer does not fail
	return b.Bytes()
}
