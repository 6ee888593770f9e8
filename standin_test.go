package pictor_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/google/uuid"

	api "pictor/gen"
)

// standIn answers as the API does, out of memory: the types are the contract's,
// the prices and the Idempotency-Key are kept, the pictures are not worked on.
// internal/e2e runs the client against the real thing; here the network and the
// server misbehave on purpose.
type standIn struct {
	api.UnimplementedHandler

	// took is how long a job takes. The zero value is for jobs that are
	// completed at once.
	took time.Duration
	fail bool // jobs end failed

	mu      sync.Mutex
	balance float64
	jobs    map[uuid.UUID]*standInJob
	keys    map[string]uuid.UUID
	seen    []seen
}

type standInJob struct {
	task    api.Task
	image   []byte
	created time.Time
}

// seen is a request as it came in.
type seen struct {
	Method, Path, Query string
	Header              http.Header
	Length              int64
	Chunked             bool
	Body                string // its SHA-256
}

const keyOfStandIn = "pictor_standin"

func newStandIn() *standIn {
	return &standIn{balance: 12.5, jobs: map[uuid.UUID]*standInJob{}, keys: map[string]uuid.UUID{}}
}

func (s *standIn) handler() http.Handler {
	server, err := api.NewServer(s, s, s, api.WithPathPrefix("/api/v1"))
	if err != nil {
		panic(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client went away
		}
		sum := sha256.Sum256(body)
		s.mu.Lock()
		s.seen = append(s.seen, seen{r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Clone(), r.ContentLength, r.TransferEncoding != nil, hex.EncodeToString(sum[:])})
		s.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		w.Header().Set("X-Request-Id", "request-of-the-test")
		server.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, r)))
	})
}

type requestKey struct{}

func (s *standIn) requests() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]seen(nil), s.seen...)
}

func (s *standIn) charged() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return 12.5 - s.balance
}

// fault is an error of the API.
type fault struct {
	status int
	code   string
}

func (f *fault) Error() string { return f.code }

func (s *standIn) NewError(_ context.Context, err error) *api.ErrorStatusCodeWithHeaders {
	f, ok := err.(*fault)
	if !ok {
		f = &fault{http.StatusUnauthorized, "invalid_key"}
	}
	out := &api.ErrorStatusCodeWithHeaders{StatusCode: f.status, Response: api.Error{Error: api.ErrorDetail{Code: f.code, Message: "It is refused: " + f.code + "."}}}
	if f.code == "job_not_ready" {
		out.RetryAfter = api.NewOptInt(1)
		out.Response.Error.Retryable = api.NewOptBool(true)
	}
	return out
}

func (s *standIn) HandleAPIKey(ctx context.Context, _ api.OperationName, _ api.APIKey) (context.Context, error) {
	return ctx, &fault{http.StatusUnauthorized, "invalid_key"}
}

func (s *standIn) HandleBearer(ctx context.Context, _ api.OperationName, b api.Bearer) (context.Context, error) {
	if b.Token != keyOfStandIn {
		return ctx, &fault{http.StatusUnauthorized, "invalid_key"}
	}
	return ctx, nil
}

func (s *standIn) GetMe(context.Context) (*api.Account, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &api.Account{
		Uname: "demo", Balance: s.balance, CostPerImage: 0.1, ImagesAffordable: int(s.balance * 10),
		CostPerTask: api.AccountCostPerTask{"remove-bg": 0.1, "upscale-2x": 0.1, "upscale-4x": 0.15},
	}, nil
}

func (s *standIn) GetTasks(context.Context) (*api.Tasks, error) {
	formats := []string{"image/jpeg", "image/png", "image/webp"}
	return &api.Tasks{
		Tasks: []api.TaskInfo{
			{ID: api.TaskRemoveBg, Name: "Remove background", Endpoint: "/remove-bg", Cost: 0.1, InputFormats: formats, OutputFormats: formats[1:2]},
			{ID: api.TaskUpscale4x, Name: "Upscale 4x", Endpoint: "/upscale", Cost: 0.15, Scale: api.NewOptInt(4), InputFormats: formats, OutputFormats: formats, MaxSidePx: api.NewOptInt(4096)},
		},
		Limits: api.Limits{MaxImageBytes: 20971520, MaxImagePixels: 100_000_000, MaxRunningJobs: 5, MaxWaitSeconds: 60, ImageURLTimeoutSeconds: 15, MaxAPIKeys: 5, ResultTTLSeconds: 86400},
	}, nil
}

func (s *standIn) RemoveBackground(ctx context.Context, req api.RemoveBackgroundReq, p api.RemoveBackgroundParams) (*api.JobWithBillingStatusCodeWithHeaders, error) {
	var image []byte
	switch r := req.(type) {
	case *api.RemoveBgInput:
		image = []byte(r.ImageURL.Value)
	case io.Reader:
		image, _ = io.ReadAll(r)
	}
	return s.create(ctx, api.TaskRemoveBg, 0.1, image, p.Wait, p.IdempotencyKey)
}

func (s *standIn) Upscale(ctx context.Context, req api.UpscaleReq, p api.UpscaleParams) (*api.JobWithBillingStatusCodeWithHeaders, error) {
	var image []byte
	switch r := req.(type) {
	case *api.UpscaleInput:
		image = []byte(r.ImageURL.Value)
	case io.Reader:
		image, _ = io.ReadAll(r)
	}
	task, cost := api.TaskUpscale2x, 0.1
	if p.Scale.Value == api.Scale4 {
		task, cost = api.TaskUpscale4x, 0.15
	}
	return s.create(ctx, task, cost, image, p.Wait, p.IdempotencyKey)
}

func (s *standIn) create(ctx context.Context, task api.Task, cost float64, image []byte, wait api.OptWait, key api.OptString) (*api.JobWithBillingStatusCodeWithHeaders, error) {
	s.mu.Lock()
	id, replayed := s.keys[key.Value]
	if !replayed {
		if s.balance < cost {
			s.mu.Unlock()
			return nil, &fault{http.StatusPaymentRequired, "insufficient_balance"}
		}
		id = uuid.New()
		s.keys[key.Value] = id
		s.jobs[id] = &standInJob{task, image, time.Now()}
		s.balance -= cost
	}
	balance := s.balance
	s.mu.Unlock()

	j, err := s.GetJob(ctx, api.GetJobParams{ID: id, Wait: wait})
	if err != nil {
		return nil, err
	}
	out := &api.JobWithBillingStatusCodeWithHeaders{StatusCode: http.StatusAccepted, Response: api.JobWithBilling{
		ID: j.ID, Task: j.Task, Status: j.Status, Progress: j.Progress, Message: j.Message, ResultURL: j.ResultURL, DownloadURL: j.DownloadURL,
		Cost: cost, Refunded: j.Refunded, CreatedAt: j.CreatedAt, UpdatedAt: j.UpdatedAt, Billing: api.Billing{Cost: cost, Balance: balance},
	}}
	if j.Progress == 100 {
		out.StatusCode = http.StatusOK
	}
	if replayed {
		out.IdempotentReplayed = api.NewOptBool(true)
	}
	return out, nil
}

func (s *standIn) job(id uuid.UUID) (standInJob, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, ok := s.jobs[id]
	if !ok {
		return standInJob{}, false
	}
	return *j, true
}

func (s *standIn) GetJob(ctx context.Context, p api.GetJobParams) (*api.Job, error) {
	j, ok := s.job(p.ID)
	if !ok {
		return nil, &fault{http.StatusNotFound, "not_found"}
	}
	left := s.took - time.Since(j.created)
	if hold := min(left, time.Duration(p.Wait.Value)*time.Second); hold > 0 {
		select {
		case <-time.After(hold):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		left -= hold
	}
	times := api.NewNilString("2026-01-31 09:30:00")
	out := &api.Job{ID: p.ID, Task: j.task, Status: api.JobStatusProcessing, Progress: 50, Message: "Half of it is done.", Cost: 0.1, CreatedAt: times, UpdatedAt: times}
	out.ResultURL.SetToNull()
	out.DownloadURL.SetToNull()
	switch {
	case left > 0:
	case s.fail:
		out.Status, out.Progress, out.Message, out.Refunded = api.JobStatusFailed, 100, "The JPEG is cut off: part of the picture is missing.", true
	default:
		out.Status, out.Progress, out.Message = api.JobStatusCompleted, 100, "Done"
		out.ResultURL.SetTo(url.URL{Scheme: "https", Host: "results.example.com", Path: "/r/3q2-7wFhQm0cV9xZJt1bYk5dLr8uEaXo.png"})
		out.DownloadURL.SetTo(url.URL{Scheme: "https", Host: "api.example.com", Path: "/api/v1/jobs/" + p.ID.String() + "/result"})
	}
	return out, nil
}

// GetJobResult gives the image back as it was.
func (s *standIn) GetJobResult(ctx context.Context, p api.GetJobResultParams, w http.ResponseWriter) error {
	j, ok := s.job(p.ID)
	if !ok {
		return &fault{http.StatusNotFound, "not_found"}
	}
	if time.Since(j.created) < s.took {
		return &fault{http.StatusConflict, "job_not_ready"}
	}
	w.Header().Set("Content-Type", "image/png")
	w.Header().Set("ETag", `"1"`)
	http.ServeContent(w, ctx.Value(requestKey{}).(*http.Request), "", time.Time{}, bytes.NewReader(j.image))
	return nil
}
