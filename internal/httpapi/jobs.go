package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	api "pictor/gen"
	"pictor/internal/blob"
	"pictor/internal/fault"
	"pictor/internal/job"
)

// pollAfter is what a client is told that asks for a result too early.
const pollAfter = 3 * time.Second

// GetJob is GET /jobs/{id}.
func (a *API) GetJob(ctx context.Context, params api.GetJobParams) (*api.Job, error) {
	exchangeOf(ctx).job = job.ID(params.ID.String())
	h := held{account: callerOf(ctx).account, id: job.ID(params.ID.String()), wait: time.Duration(params.Wait.Value) * time.Second}
	if h.wait > 0 {
		return nil, exchangeOf(ctx).await(h)
	}
	j, err := a.waits.For(ctx, h.account, h.id, 0)
	if err != nil {
		return nil, err
	}
	return a.toJob(*j)
}

// GetJobResult is GET /jobs/{id}/result.
func (a *API) GetJobResult(ctx context.Context, params api.GetJobResultParams, w http.ResponseWriter) error {
	exchangeOf(ctx).job = job.ID(params.ID.String())
	j, err := a.db.Job(ctx, callerOf(ctx).account, job.ID(params.ID.String()))
	if err != nil {
		return err
	}
	switch {
	case j.State == job.Failed:
		return fault.New(fault.JobFailed, "There is no result, because the job failed: "+j.Message)
	case j.State != job.Completed:
		early := fault.New(fault.JobNotReady, "The job has not finished yet. Ask again in a few seconds, or wait for it with GET /jobs/{id}?wait=60.")
		early.RetryAfter = pollAfter
		return early
	case time.Since(j.FinishedAt) > a.config.ResultTTL:
		return expired()
	}
	object, err := a.store.Open(ctx, j.ResultKey())
	if errors.Is(err, blob.ErrNotFound) {
		return expired()
	}
	if err != nil {
		return err
	}
	defer object.Close()
	return a.sendResult(ctx, w, j, object, params.Download.Value)
}

func expired() *fault.Error {
	return fault.New(fault.NotFound, "The result of this job has expired and was deleted.")
}

// sendResult leaves ranges and conditions to net/http, and turns its plain-text
// refusals into the API's.
func (a *API) sendResult(ctx context.Context, w http.ResponseWriter, j job.Job, object *blob.Object, attach bool) error {
	x := exchangeOf(ctx)
	x.allowed = headStart + time.Duration(j.ResultSize)*time.Second/leastSpeed
	h := w.Header()
	h.Set("Content-Type", j.ResultType)
	h.Set("ETag", `"`+string(j.ID)+"."+strconv.FormatInt(j.Fence, 10)+`"`)
	h.Set("Cache-Control", "private, no-cache")
	if attach {
		h.Set("Content-Disposition", `attachment; filename="`+string(j.Task)+"-"+string(j.ID)+job.Extension(j.ResultType)+`"`)
	}
	r := x.inbound
	if wanted := r.Header.Get("Range"); strings.Contains(wanted, ",") || !strings.HasPrefix(wanted, "bytes=") {
		// Several ranges would be answered as multipart/byteranges, which the
		// contract does not have, and another unit as 416: a server may ignore
		// both, and should the second.
		r = r.Clone(ctx)
		r.Header.Del("Range")
	}
	checked := &conditionWriter{ResponseWriter: w}
	http.ServeContent(checked, r, "", j.FinishedAt, object)
	switch checked.refused {
	case http.StatusRequestedRangeNotSatisfiable:
		return unmet{checked.refused, fault.New(fault.InvalidRequest, "No byte of the result lies in the range asked for.")}
	case http.StatusPreconditionFailed:
		return unmet{checked.refused, fault.New(fault.InvalidRequest, "The result is not the version that the If-Match or If-Unmodified-Since header asks for.")}
	case 0:
		return nil
	}
	return fault.Busy(errors.New("net/http refused to send a result with status " + strconv.Itoa(checked.refused)))
}

// conditionWriter keeps refusals back.
type conditionWriter struct {
	http.ResponseWriter
	refused int
}

// WriteHeader is http.ResponseWriter.
func (w *conditionWriter) WriteHeader(status int) {
	if status >= 400 {
		w.refused = status
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write is http.ResponseWriter.
func (w *conditionWriter) Write(p []byte) (int, error) {
	if w.refused != 0 {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}
