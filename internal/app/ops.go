package app

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"

	"pictor/internal/job"
)

// checkTimeout bounds one look at one part.
const checkTimeout = 3 * time.Second

// check is a part that must work for the process to be of use.
type check struct {
	name string
	look func(context.Context) error
}

// ops answers an orchestrator: /healthz while the process lives, /readyz while
// it should be given work, /metrics with what it counts.
type ops struct {
	ready   atomic.Bool
	checks  []check
	metrics []*metrics          // of every part of the process
	models  map[job.Task]string // in use, where pictures are worked on
}

func (o *ops) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeHealth(w, health{OK: true, Checks: map[string]string{"process": "ok"}})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		parts, fine := o.look(r.Context())
		writeHealth(w, health{fine, parts, o.models})
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) { metricsHandler(o.metrics).ServeHTTP(w, r) })
	return mux
}

// look asks every part. Each is "ok", or says what is wrong.
func (o *ops) look(ctx context.Context) (parts map[string]string, fine bool) {
	fine = o.ready.Load()
	parts = map[string]string{"process": "ok"}
	if !fine {
		parts["process"] = "starting or stopping"
	}
	for _, c := range o.checks {
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		err := c.look(ctx)
		cancel()
		parts[c.name] = "ok"
		if err != nil {
			parts[c.name] = err.Error()
			fine = false
		}
	}
	return parts, fine
}

// health is the answer to /healthz and /readyz.
type health struct {
	OK     bool                `json:"ok"`
	Checks map[string]string   `json:"checks"`
	Models map[job.Task]string `json:"models,omitempty"`
}

func writeHealth(w http.ResponseWriter, h health) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !h.OK {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(h)
}
