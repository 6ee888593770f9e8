package app

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are what a process tells at /metrics of its ops listener.
type metrics struct {
	registry *prometheus.Registry
	rows     []metricRow // as the README lists them
}

// metricRow describes one metric.
type metricRow struct {
	name, kind string
	labels     []string
	help       string
}

func newMetrics() *metrics { return &metrics{registry: prometheus.NewRegistry()} }

// runtimeMetrics are what every Go program can tell of itself. They are not in
// the README: their names are the library's.
func runtimeMetrics() *metrics {
	m := newMetrics()
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) add(kind, name, help string, labels []string, c prometheus.Collector) {
	m.registry.MustRegister(c)
	m.rows = append(m.rows, metricRow{name, kind, labels, help})
}

func (m *metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.add("counter", name, help, labels, c)
	return c
}

func (m *metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.add("gauge", name, help, labels, g)
	return g
}

// reading is a gauge that is read when somebody asks.
func (m *metrics) reading(name, help string, read func() float64) {
	m.add("gauge", name, help, nil, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

func (m *metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.add("histogram", name, help, labels, h)
	return h
}

// refunds is in both kinds of process: whoever decides counts.
func (m *metrics) refunds(reasons ...string) *prometheus.CounterVec {
	c := m.counter("pictor_refunds_total", "Charges that this process gave back: in `serve` of jobs that were `unqueued`, `orphan` or `stuck`, in `worker` of pictures that were `refused` or `given_up`.", "reason")
	for _, reason := range reasons {
		c.WithLabelValues(reason) // so that it is 0, and not missing, until it happens
	}
	return c
}

// metricsHandler answers with what all parts of a process tell.
func metricsHandler(all []*metrics) http.Handler {
	var gather prometheus.Gatherers
	for _, m := range all {
		gather = append(gather, m.registry)
	}
	return promhttp.HandlerFor(gather, promhttp.HandlerOpts{})
}

func (r metricRow) is(other metricRow) bool { return r.name == other.name }

// row is the metric as a row of the README's table.
func (r metricRow) row(of string) string {
	name := r.name
	if len(r.labels) > 0 {
		name += "{" + strings.Join(r.labels, ",") + "}"
	}
	return "| `" + name + "` | " + of + " | " + r.kind + " | " + r.help + " |\n"
}
