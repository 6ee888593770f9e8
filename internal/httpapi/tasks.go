package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	api "pictor/gen"
	"pictor/internal/job"
	"pictor/internal/point"
)

// GetTasks is GET /tasks, computed from the constants that the stages enforce.
func (a *API) GetTasks(context.Context) (*api.Tasks, error) {
	tasks := &api.Tasks{
		Currency: point.Currency,
		Limits: api.Limits{
			MaxImageBytes:          job.MaxImageBytes,
			MaxImagePixels:         job.MaxImagePixels,
			MaxRunningJobs:         job.MaxRunning,
			MaxWaitSeconds:         int(job.MaxWait / time.Second),
			ImageURLTimeoutSeconds: int(job.URLTimeout / time.Second),
			MaxAPIKeys:             job.MaxKeys,
			ResultTTLSeconds:       int64(a.config.ResultTTL / time.Second),
		},
	}
	for _, t := range job.Tasks() {
		tasks.Tasks = append(tasks.Tasks, toTask(t))
	}
	return tasks, nil
}

// GetOpenAPI is GET /openapi.json: the contract, byte for byte but for servers.
func (a *API) GetOpenAPI(_ context.Context, w http.ResponseWriter) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(a.document)))
	_, _ = w.Write(a.document) // fails only when the client has gone
	return nil
}
