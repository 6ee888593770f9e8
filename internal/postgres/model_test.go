package postgres_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"pictor/internal/fault"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/testkit/pgtest"
)

// lease is what a model knows of a processing job's lease.
type lease int

const (
	running lease = iota
	lapsed
	givenBack
)

// modelJob is a job as the rules say it should be.
type modelJob struct {
	id        job.ID
	state     job.State
	cost      point.Amount
	fence     int64
	lapses    int
	lease     lease
	confirmed bool
	progress  int
	key       string
	content   string
	billed    point.Amount
}

// model is one account and its jobs, in memory and in words.
type model struct {
	account int64
	balance point.Amount
	running int
	opening point.Amount
	credits point.Amount
	jobs    []*modelJob
}

func (m *model) holder(key string) *modelJob {
	for _, j := range m.jobs {
		if key != "" && j.key == key {
			return j
		}
	}
	return nil
}

func (m *model) fail(j *modelJob) {
	j.state = job.Failed
	m.balance += j.cost
	m.running--
}

// Random sequences of everything that can happen to an account, each step held
// against the model: the verdict, the job and the account.
func TestModel_and_database_agree_on_random_sequences(t *testing.T) {
	t.Parallel()
	b := open(t, 4)
	ctx := t.Context()
	rapid.Check(t, func(r *rapid.T) {
		opening := point.Amount(rapid.IntRange(0, 1500).Draw(r, "opening balance"))
		a := pgtest.NewAccount(t, b.DB, opening)
		m := &model{account: a.ID, balance: opening, opening: opening}

		pick := func(r *rapid.T) *modelJob {
			if len(m.jobs) == 0 {
				r.Skip("no job yet")
			}
			// The last ones: older jobs are final and would only be refused.
			from := max(0, len(m.jobs)-6)
			return m.jobs[rapid.IntRange(from, len(m.jobs)-1).Draw(r, "job")]
		}
		fence := func(r *rapid.T, j *modelJob) int64 {
			return j.fence - int64(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(r, "fences behind"))
		}
		agree := func(r *rapid.T, what string, want, got any, err error) {
			if err != nil {
				r.Fatalf("%s: %v", what, err)
			}
			if fmt.Sprint(want) != fmt.Sprint(got) {
				r.Fatalf("%s: want %v, got %v", what, want, got)
			}
		}

		r.Repeat(map[string]func(*rapid.T){
			"admit": func(r *rapid.T) {
				ask := pgtest.Admission(t, m.account)
				ask.Task = rapid.SampledFrom(job.Tasks()).Draw(r, "task")
				ask.Key = rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(r, "key")
				content := rapid.SampledFrom([]string{"one", "one", "two"}).Draw(r, "content")
				if ask.Key != "" {
					ask.Fingerprint = []byte(content)
				}
				got, err := b.Admit(ctx, ask)
				code := refused(t, err)
				cost := ask.Task.Cost()
				first := m.holder(ask.Key)
				switch {
				case first != nil && first.content != content:
					agree(r, "refusal", fault.InvalidRequest, code, nil)
				case first != nil:
					agree(r, "refusal", fault.Code(""), code, nil)
					agree(r, "replay", []any{true, first.id, first.billed, first.confirmed},
						[]any{got.Replayed, got.Job.ID, got.Balance, got.Enqueued}, nil)
				case m.running >= job.MaxRunning:
					agree(r, "refusal", fault.TooManyJobs, code, nil)
				case m.balance < cost:
					agree(r, "refusal", fault.InsufficientBalance, code, nil)
				default:
					agree(r, "refusal", fault.Code(""), code, nil)
					m.balance -= cost
					m.running++
					m.jobs = append(m.jobs, &modelJob{
						id: ask.ID, state: job.Queued, cost: cost, key: ask.Key, content: content, billed: m.balance,
					})
					agree(r, "balance", m.balance, got.Balance, nil)
				}
			},
			"enqueued": func(r *rapid.T) {
				j := pick(r)
				stands, err := b.Enqueued(ctx, j.id)
				cancelled := j.state == job.Failed && j.fence == 0
				agree(r, "stands", !cancelled, stands, err)
				j.confirmed = j.confirmed || !cancelled
			},
			"cancel": func(r *rapid.T) {
				j := pick(r)
				done, err := b.Cancel(ctx, j.id, "cancelled")
				if j.state == job.Queued && !j.confirmed {
					m.fail(j)
					j.key = ""
				}
				agree(r, "cancelled", j.state == job.Failed && j.fence == 0, done, err)
			},
			"claim": func(r *rapid.T) {
				j := pick(r)
				ends := rapid.Bool().Draw(r, "lease runs out")
				d := hour
				if ends {
					d = over
				}
				beside := rapid.Bool().Draw(r, "beside others")
				claim := b.Claim
				if beside {
					claim = b.ClaimBeside
				}
				got, verdict, err := claim(ctx, j.id, d)
				want := postgres.Gone
				switch {
				case j.state.Final():
				case j.state == job.Processing && j.lease == running:
					want = postgres.Leased
				case j.state == job.Processing && j.lease == lapsed && j.lapses+1 >= job.MaxClaims:
					want = postgres.GivenUp
					m.fail(j)
				case beside && j.state == job.Processing && j.lease == lapsed && j.lapses+1 == job.MaxClaims-1:
					want = postgres.Last
					j.lapses++
					j.lease = givenBack
				case beside && j.lapses >= job.MaxClaims-1:
					want = postgres.Last
				default:
					want = postgres.Claimed
					if j.state == job.Processing && j.lease == lapsed {
						j.lapses++
					}
					j.state, j.lease, j.confirmed = job.Processing, running, true
					j.fence++
					if ends {
						j.lease = lapsed
					}
					agree(r, "fence", j.fence, got.Fence, nil)
				}
				agree(r, "verdict", want, verdict, err)
			},
			"progress": func(r *rapid.T) {
				j, percent := pick(r), rapid.IntRange(0, 100).Draw(r, "percent")
				f := fence(r, j)
				done, err := b.Progress(ctx, j.id, f, percent, "", hour)
				want := j.state == job.Processing && f == j.fence && j.lease != givenBack
				agree(r, "heartbeat", want, done, err)
				if want {
					j.lease, j.progress = running, max(j.progress, percent)
				}
			},
			"give back": func(r *rapid.T) {
				j := pick(r)
				f := fence(r, j)
				counts := rapid.Bool().Draw(r, "after an error")
				back := b.GiveBack
				if counts {
					back = b.Lapse
				}
				done, err := back(ctx, j.id, f)
				want := j.state == job.Processing && f == j.fence
				agree(r, "given back", want, done, err)
				if want {
					if counts && j.lease != givenBack {
						j.lapses++
					}
					j.lease = givenBack
				}
			},
			"complete": func(r *rapid.T) {
				j := pick(r)
				f := fence(r, j)
				done, err := b.Complete(ctx, j.id, f, result(j.id))
				if j.state == job.Processing && f == j.fence {
					j.state, j.progress = job.Completed, 100
					m.running--
				}
				agree(r, "completed", j.state == job.Completed && f == j.fence, done, err)
			},
			"fail": func(r *rapid.T) {
				j := pick(r)
				f := fence(r, j)
				done, err := b.Fail(ctx, j.id, f, "failed")
				if j.state == job.Processing && f == j.fence {
					m.fail(j)
				}
				agree(r, "failed", j.state == job.Failed && f == j.fence, done, err)
			},
			"sweep the silent": func(r *rapid.T) {
				j := pick(r)
				done, err := b.Sweep(ctx, j.id, 0, "swept")
				agree(r, "swept", !j.state.Final(), done, err)
				if !j.state.Final() {
					m.fail(j)
				}
			},
			"sweep the poisoned": func(r *rapid.T) {
				j := pick(r)
				done, err := b.Sweep(ctx, j.id, hour, "swept")
				want := j.state == job.Processing && j.lease == lapsed && j.lapses+1 >= job.MaxClaims
				agree(r, "swept", want, done, err)
				if want {
					m.fail(j)
				}
			},
			"credit": func(r *rapid.T) {
				amount := point.Amount(rapid.IntRange(-300, 300).Filter(func(n int) bool { return n != 0 }).Draw(r, "amount"))
				_, err := b.Credit(ctx, m.account, amount, "")
				agree(r, "refused", m.balance+amount < 0, err != nil, nil)
				if err == nil {
					m.balance += amount
					m.credits += amount
				}
			},
			"": func(r *rapid.T) {
				got := b.purse(t, m.account)
				agree(r, "account", purse{m.balance, m.running}, got, nil)
				spent := point.Amount(0)
				for _, j := range m.jobs {
					if j.state != job.Failed {
						spent += j.cost
					}
				}
				agree(r, "balance = opening + credits - jobs that were not refunded", m.opening+m.credits-spent, got.Balance, nil)
				for _, j := range m.jobs[max(0, len(m.jobs)-6):] {
					row := b.row(t, j.id)
					agree(r, "job", []any{j.state, j.fence, j.lapses, j.progress, j.state == job.Failed},
						[]any{row.State, row.Fence, row.Lapses, row.Progress, row.Refunded}, nil)
				}
			},
		})
	})
}
