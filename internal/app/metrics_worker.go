package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"pictor/internal/job"
	"pictor/internal/work"
)

// workerMetrics are those of `pictor worker`.
type workerMetrics struct {
	*metrics
	claims   *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	refunded *prometheus.CounterVec
}

func newWorkerMetrics() *workerMetrics {
	m := &workerMetrics{metrics: newMetrics()}
	m.claims = m.counter("pictor_claims_total", "Claims of this worker by outcome: `completed`; `refused` (the picture is to blame) and `given_up` (the last attempt), both refunded; `returned` to the queue; `dropped` (another worker has the job); `unwritten` (no database).", "task", "outcome")
	m.seconds = m.histogram("pictor_picture_seconds", "Time from the claim to the completed job.",
		[]float64{.1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300}, "task")
	m.refunded = m.refunds(string(work.Refused), string(work.GivenUp))
	for _, t := range job.Tasks() {
		for _, o := range work.Outcomes() {
			m.claims.WithLabelValues(string(t), string(o))
		}
	}
	return m
}

// ended is the worker's hook.
func (m *workerMetrics) ended(t job.Task, o work.Outcome, took time.Duration) {
	m.claims.WithLabelValues(string(t), string(o)).Inc()
	switch o {
	case work.Completed:
		m.seconds.WithLabelValues(string(t)).Observe(took.Seconds())
	case work.Refused, work.GivenUp:
		m.refunded.WithLabelValues(string(o)).Inc()
	}
}
