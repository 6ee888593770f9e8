package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"pictor/internal/job"
	"pictor/internal/render"
	"pictor/internal/vips"
	"pictor/internal/work"
)

// workerMetrics are those of `pictor worker`.
type workerMetrics struct {
	*metrics
	claims   *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	refunded *prometheus.CounterVec
	queued   *prometheus.HistogramVec
	stages   *prometheus.HistogramVec
	slots    *prometheus.GaugeVec
	busy     *prometheus.GaugeVec
	worked   *prometheus.CounterVec
	engine   *prometheus.GaugeVec
	model    *prometheus.GaugeVec
}

func newWorkerMetrics() *workerMetrics {
	m := &workerMetrics{metrics: newMetrics()}
	m.claims = m.counter("pictor_claims_total", "Claims of this worker by outcome: `completed`; `refused` (the picture is to blame) and `given_up` (the last attempt), both refunded; `returned` to the queue; `dropped` (another worker has the job); `unwritten` (no database).", "task", "outcome")
	m.seconds = m.histogram("pictor_picture_seconds", "Time from the claim to the completed job.",
		[]float64{.1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300}, "task")
	m.stages = m.histogram("pictor_stage_seconds", "Time of a picture's stages: `fetch` its input, `decode`, `model`, `matte` (remove-bg), `encode`, `store` the result.",
		[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}, "task", "stage")
	m.queued = m.histogram("pictor_queue_seconds", "Time from the charge to the first claim, by the database's clock.",
		[]float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}, "task")
	m.slots = m.gauge("pictor_worker_slots", "Pictures that this worker works on at a time, at most.")
	m.busy = m.gauge("pictor_worker_busy", "Pictures that this worker works on now.")
	m.worked = m.counter("pictor_worker_busy_seconds_total", "Time of all claims that ended. Its rate over the slots is how busy the worker is.")
	m.engine = m.gauge("pictor_engine_info", "Always 1: what runs the models, and on what.", "engine", "provider")
	m.model = m.gauge("pictor_model_info", "Always 1: the model of each task, by its name in `pictor models list`.", "task", "model")
	m.reading("pictor_vips_bytes", "Memory that libvips holds. Of the whole process see process_resident_memory_bytes.", func() float64 { now, _ := vips.Memory(); return float64(now) })
	m.reading("pictor_vips_most_bytes", "The most memory that libvips held so far.", func() float64 { _, most := vips.Memory(); return float64(most) })
	m.refunded = m.refunds(string(work.Refused), string(work.GivenUp))
	m.slots.WithLabelValues()
	m.busy.WithLabelValues()
	m.worked.WithLabelValues()
	for _, t := range job.Tasks() {
		m.queued.WithLabelValues(string(t))
		for _, o := range work.Outcomes() {
			m.claims.WithLabelValues(string(t), string(o))
		}
	}
	return m
}

// claimed is the worker's hook.
func (m *workerMetrics) claimed(j job.Job) {
	m.busy.WithLabelValues().Inc()
	if j.Fence == 1 {
		m.queued.WithLabelValues(string(j.Task)).Observe(j.UpdatedAt.Sub(j.CreatedAt).Seconds())
	}
}

// stage is the hook of the worker and the renderer.
func (m *workerMetrics) stage(t job.Task, lap render.Lap) {
	m.stages.WithLabelValues(string(t), string(lap.Stage)).Observe(lap.Busy.Seconds())
}

// buried is the worker's hook for a job that it need not claim any more.
func (m *workerMetrics) buried(job.Task) {
	m.refunded.WithLabelValues(string(work.GivenUp)).Inc()
}

// ended is the worker's hook.
func (m *workerMetrics) ended(t job.Task, o work.Outcome, took time.Duration) {
	m.busy.WithLabelValues().Dec()
	m.worked.WithLabelValues().Add(took.Seconds())
	m.claims.WithLabelValues(string(t), string(o)).Inc()
	switch o {
	case work.Completed:
		m.seconds.WithLabelValues(string(t)).Observe(took.Seconds())
	case work.Refused, work.GivenUp:
		m.refunded.WithLabelValues(string(o)).Inc()
	}
}
