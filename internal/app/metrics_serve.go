package app

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"pictor/internal/bus"
	"pictor/internal/job"
	"pictor/internal/postgres"
	"pictor/internal/sweep"
)

const (
	// jobsEvery and booksEvery are the pauses between two looks at the database.
	jobsEvery  = 10 * time.Second
	booksEvery = time.Minute
	// share bounds what the looks take of the database: after one that took
	// long, the pause is this many times as long.
	share = 20
)

// serveMetrics are those of `pictor serve`. Requests and refunds are counted
// where they happen. Jobs and books are the whole installation's, read from the
// database, so every process tells the same: take the maximum, not the sum.
type serveMetrics struct {
	*metrics
	requests   *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	swept      *prometheus.CounterVec
	refunded   *prometheus.CounterVec
	jobs       *prometheus.GaugeVec
	messages   *prometheus.GaugeVec
	oldest     *prometheus.GaugeVec
	stored     *prometheus.GaugeVec
	points     *prometheus.GaugeVec
	violations *prometheus.GaugeVec
	checked    *prometheus.GaugeVec
}

func newServeMetrics(waiting func() float64) *serveMetrics {
	m := &serveMetrics{metrics: newMetrics()}
	m.requests = m.counter("pictor_http_requests_total", "Answered requests. route is a pattern, `/jobs/{id}`, or `other`; status is `cut` for an answer that broke off.", "host", "route", "method", "status")
	m.seconds = m.histogram("pictor_http_request_seconds", "Time to the end of the answer, the asked-for `wait` included.",
		[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}, "host", "route")
	m.reading("pictor_waiting_requests", "Requests that are held until their job is final.", waiting)
	m.swept = m.counter("pictor_swept_total", "What this process's sweeper did: `orphans` and `stuck` jobs refunded, messages `republished`, `expired` results, `inputs` and `garbage` deleted.", "action")
	m.refunded = m.refunds("unqueued", "orphan", "stuck")
	m.round(sweep.Counts{}) // so that each is 0, and not missing, until it happens
	m.jobs = m.gauge("pictor_jobs", "Jobs of the installation: those at work read every 10 s, final ones every minute.", "task", "state")
	m.messages = m.gauge("pictor_queue_messages", "Messages in the queue that no worker has taken, every 10 s. Fewer than the queued jobs for a moment; when for long, messages are lost and the sweeper publishes them again.", "task")
	m.oldest = m.gauge("pictor_queue_oldest_seconds", "How long the oldest queued job has waited, 0 without one, every 10 s.", "task")
	m.stored = m.gauge("pictor_blob_bytes", "Bytes that the store holds for jobs, every minute: `input` and `result`.", "kind")
	m.points = m.gauge("pictor_ledger_points", "Sum of the ledger in Point, every minute: `charge` (negative), `refund`, `credit`.", "kind")
	m.violations = m.gauge("pictor_invariant_violations", "Rows that break an invariant of the books, all together, every minute. Anything but 0 is an alarm; `pictor doctor` names it.")
	m.checked = m.gauge("pictor_invariants_checked_timestamp_seconds", "When the invariants were last checked, in Unix time. It stands still when the database does not answer.")
	return m
}

// queueRefund is admission's hook.
func (m *serveMetrics) queueRefund() { m.refunded.WithLabelValues("unqueued").Inc() }

// round is the sweeper's hook.
func (m *serveMetrics) round(c sweep.Counts) {
	for action, n := range map[string]int{
		"orphans": c.Orphans, "republished": c.Republished, "stuck": c.Stuck,
		"expired": c.Expired, "inputs": c.Inputs, "garbage": c.Garbage,
	} {
		m.swept.WithLabelValues(action).Add(float64(n))
	}
	m.refunded.WithLabelValues("orphan").Add(float64(c.Orphans))
	m.refunded.WithLabelValues("stuck").Add(float64(c.Stuck))
}

// request is the doors' hook.
func (m *serveMetrics) request(host, route, method string, status int, took time.Duration) {
	code := "cut"
	if status != 0 {
		code = strconv.Itoa(status)
	}
	m.requests.WithLabelValues(host, route, method, code).Inc()
	m.seconds.WithLabelValues(host, route).Observe(took.Seconds())
}

// watch keeps the readings of the database fresh until ctx is done.
func (m *serveMetrics) watch(ctx context.Context, db *postgres.DB, queue *bus.Bus, stuckAfter time.Duration, log *slog.Logger) {
	look := func(what string, every time.Duration, do func(context.Context) error) {
		for {
			began := time.Now()
			if err := do(ctx); err != nil && ctx.Err() == nil {
				log.Warn("a metric could not be read", "metric", what, "error", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(max(every, share*time.Since(began))):
			}
		}
	}
	var all sync.WaitGroup
	all.Go(func() {
		look("jobs", jobsEvery, func(ctx context.Context) error {
			return errors.Join(m.count(ctx, db.Unfinished, job.Queued, job.Processing), m.ages(ctx, db))
		})
	})
	all.Go(func() {
		look("messages", jobsEvery, func(ctx context.Context) error { return m.backlog(ctx, queue) })
	})
	all.Go(func() {
		look("books", booksEvery, func(ctx context.Context) error { return m.books(ctx, db, stuckAfter) })
	})
	all.Wait()
}

func (m *serveMetrics) ages(ctx context.Context, db *postgres.DB) error {
	ages, err := db.Ages(ctx)
	if err != nil {
		return err
	}
	for _, t := range job.Tasks() {
		m.oldest.WithLabelValues(string(t)).Set(ages[t].Seconds())
	}
	return nil
}

func (m *serveMetrics) backlog(ctx context.Context, queue *bus.Bus) error {
	messages, err := queue.Backlog(ctx)
	if err != nil {
		return err
	}
	for t, n := range messages {
		m.messages.WithLabelValues(string(t)).Set(float64(n))
	}
	return nil
}

// count reads how many jobs stand in the states.
func (m *serveMetrics) count(ctx context.Context, read func(context.Context) ([]postgres.Tally, error), states ...job.State) error {
	tallies, err := read(ctx)
	if err != nil {
		return err
	}
	for _, t := range job.Tasks() {
		for _, s := range states {
			n := int64(0)
			for _, of := range tallies {
				if of.Task == t && of.State == s {
					n = of.Jobs
				}
			}
			m.jobs.WithLabelValues(string(t), string(s)).Set(float64(n))
		}
	}
	return nil
}

func (m *serveMetrics) books(ctx context.Context, db *postgres.DB, stuckAfter time.Duration) error {
	invariants, err := db.Invariants(ctx, stuckAfter)
	if err != nil {
		return err
	}
	sum := int64(0)
	for _, v := range invariants {
		sum += v.Count
	}
	m.violations.WithLabelValues().Set(float64(sum))
	m.checked.WithLabelValues().SetToCurrentTime()
	movements, err := db.Movements(ctx)
	if err != nil {
		return err
	}
	for _, v := range movements {
		m.points.WithLabelValues(v.Kind).Set(v.Amount.Float())
	}
	inputs, results, err := db.Stored(ctx)
	if err != nil {
		return err
	}
	m.stored.WithLabelValues("input").Set(float64(inputs))
	m.stored.WithLabelValues("result").Set(float64(results))
	return m.count(ctx, db.Finished, job.Completed, job.Failed)
}
