package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"

	"pictor/internal/apikey"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/testkit/contract"
	"pictor/internal/testkit/pgtest"
)

// 64 clients want jobs at the same instant, of one account or of 20. Each
// account gets exactly as many as it may run, or can pay; the rest is refused,
// and the refusals charge nothing.
func TestLimits_are_exact_under_a_rush(t *testing.T) {
	t.Parallel()
	s := start(t, 0)
	const clients, payable = 64, 3
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
			accounts := make([]postgres.Account, row.accounts)
			customers := make([]*customer, row.accounts)
			for i := range accounts {
				accounts[i] = pgtest.NewAccount(t, s.db, row.balance)
				customers[i] = s.customer(t, pgtest.NewKey(t, s.db, accounts[i].ID))
			}
			begin := make(chan struct{})
			var all sync.WaitGroup
			for range clients {
				all.Go(func() {
					<-begin
					for _, i := range rand.Perm(len(customers)) {
						customers[i].post(context.WithoutCancel(t.Context()), "/upscale?scale=2", tiny())
					}
				})
			}
			close(begin)
			all.Wait()

			for i, c := range customers {
				// A machine that is too busy to queue a job in time answers 502 and
				// gives the charge back; the slot is then free for another request,
				// or for none.
				accepted, unqueued, cut := c.answers["202"], c.answers["502 queue_error"], 0
				for name, n := range c.answers {
					if name[0] < '0' || name[0] > '9' { // an error in place of an answer
						cut += n
					}
				}
				if accepted > row.accepted || accepted < row.accepted && unqueued == 0 && cut == 0 {
					t.Errorf("account %d: %d requests were accepted, want %d", i, accepted, row.accepted)
				}
				now, err := s.db.AccountByID(t.Context(), accounts[i].ID)
				must(t, err)
				if cut > 0 {
					// A machine that takes 10 s to read a header cuts the connection
					// off. Such a client does not know what it got.
					if now.Running > row.accepted {
						t.Errorf("account %d runs %d jobs, want at most %d", i, now.Running, row.accepted)
					}
					continue
				}
				if refused := c.answers[row.code]; accepted+unqueued+refused != clients {
					t.Errorf("account %d: %v, want every other request refused with %s", i, c.answers, row.code)
				}
				spent := point.Amount(accepted) * job.Upscale2x.Cost()
				if now.Running != accepted || now.Balance != row.balance-spent {
					t.Errorf("account %d runs %d jobs and has %s left, want %d and %s", i, now.Running, now.Balance, accepted, row.balance-spent)
				}
				if rows := amounts(t, s.db, accounts[i].ID); len(rows) != 1+accepted+2*unqueued {
					t.Errorf("account %d has the ledger %v, want a credit, %d charges, and %d with their refund", i, rows, accepted, unqueued)
				}
			}
			s.checkInvariants(t)
		})
	}
}

// customer is a plain HTTP client with one key, which counts its answers and
// repeats nothing.
type customer struct {
	base string
	key  apikey.Key
	http *http.Client

	mu      sync.Mutex
	answers map[string]int // by status, with the code of a refusal
}

func (s *stack) customer(t testing.TB, key apikey.Key) *customer {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &customer{base: s.api.BaseURL, key: key, http: &http.Client{Transport: contract.NewTransport(t, transport)}, answers: make(map[string]int)}
}

// post sends a picture and returns the id of its job, if it got one.
func (c *customer) post(ctx context.Context, path string, picture []byte) (job.ID, int) {
	return c.ask(ctx, http.MethodPost, path, bytes.NewReader(picture))
}

func (c *customer) ask(ctx context.Context, method, path string, body io.Reader) (job.ID, int) {
	q, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		c.count(err.Error())
		return "", 0
	}
	q.Header.Set("Authorization", "Bearer "+string(c.key))
	if method == http.MethodPost {
		q.Header.Set("Content-Type", job.PNG)
	}
	response, err := c.http.Do(q)
	if err != nil {
		c.count(err.Error())
		return "", 0
	}
	defer response.Body.Close()
	var answer struct {
		ID    job.ID
		Error struct{ Code string }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		c.count(err.Error())
		return "", 0
	}
	name := fmt.Sprint(response.StatusCode)
	if answer.Error.Code != "" {
		name += " " + answer.Error.Code
	}
	c.count(name)
	return answer.ID, response.StatusCode
}

func (c *customer) count(answer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[answer]++
}

// tiny is a picture that costs little to send.
func tiny() []byte {
	var b bytes.Buffer
	_ = png.Encode(&b, image.NewGray(image.Rect(0, 0, 32, 32))) // a buffer does not fail
	return b.Bytes()
}
