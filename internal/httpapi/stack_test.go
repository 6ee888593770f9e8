package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pictor/internal/admission"
	"pictor/internal/apikey"
	"pictor/internal/blob"
	"pictor/internal/bus"
	"pictor/internal/httpapi"
	"pictor/internal/intake"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/testkit/contract"
	"pictor/internal/testkit/pgtest"
	"pictor/internal/wait"
)

const (
	prefix   = "pictor"
	results  = "https://results.example.com"
	lease    = time.Minute
	patience = 30 * time.Second
)

// stack is the edge on a real database, a real queue and a real store. Its
// client holds every response against the contract.
type stack struct {
	t      testing.TB
	db     *postgres.DB
	nats   *bus.Server
	queue  *bus.Bus
	store  *blob.Store
	waits  *wait.Hub
	api    *httpapi.API
	server *httptest.Server
	client *http.Client
}

func start(t testing.TB, change ...func(*httpapi.Config)) *stack {
	t.Helper()
	return startOn(t, pgtest.New(t), change...)
}

func startOn(t testing.TB, db *postgres.DB, change ...func(*httpapi.Config)) *stack {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	s := &stack{t: t, db: db}
	var err error
	s.nats, err = bus.StartServer(t.TempDir(), 0, log)
	must(t, err)
	t.Cleanup(s.nats.Stop)
	s.queue, err = bus.Connect(bus.Config{URL: s.nats.URL(), Name: t.Name()}, log)
	must(t, err)
	t.Cleanup(s.queue.Close)
	must(t, s.queue.Ensure(t.Context()))
	s.store, err = blob.Open(t.Context(), "file://"+t.TempDir())
	must(t, err)
	t.Cleanup(func() { _ = s.store.Close() })
	in, err := intake.New(intake.Config{Dir: t.TempDir(), Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	must(t, err)
	s.waits, err = wait.New(db, s.queue, log)
	must(t, err)
	t.Cleanup(s.waits.Close)

	s.server = httptest.NewUnstartedServer(nil)
	s.server.Listener = httpapi.Listener(s.server.Listener)
	config := httpapi.Config{
		BaseURL:    "http://" + s.server.Listener.Addr().String() + "/api/v1",
		ResultsURL: results,
		KeyPrefix:  prefix,
		ResultTTL:  24 * time.Hour,
	}
	for _, c := range change {
		c(&config)
	}
	s.api, err = httpapi.New(config, db, in, admission.New(db, s.store, s.queue, log), s.waits, s.store, log)
	must(t, err)
	s.server.Config.Handler, s.server.Config.ConnContext = s.api, s.api.ConnContext
	s.server.Start()
	go s.server.Config.Serve(s.api.Held())
	t.Cleanup(s.server.Close)
	s.client = &http.Client{Transport: contract.NewTransport(t, s.server.Client().Transport)}
	return s
}

// in is the stack for a subtest: its helpers fail that one.
func (s *stack) in(t testing.TB) *stack {
	c := *s
	c.t = t
	return &c
}

// account makes an account with a balance and a key.
func (s *stack) account(balance string) (id int64, key string) {
	s.t.Helper()
	amount, err := point.Parse(balance)
	must(s.t, err)
	account, err := s.db.CreateAccount(s.t.Context(), fmt.Sprintf("demo-%d", time.Now().UnixNano()), amount, false)
	must(s.t, err)
	secret := apikey.New(prefix)
	_, err = s.db.CreateKey(s.t.Context(), account.ID, secret, "test")
	must(s.t, err)
	return account.ID, string(secret)
}

// complete does what a worker does that finishes the job.
func (s *stack) complete(id job.ID, imageType string, image []byte) {
	s.t.Helper()
	ctx := s.t.Context()
	j := s.claim(id)
	must(s.t, s.store.Put(ctx, j.ResultKey(), imageType, bytes.NewReader(image)))
	ok, err := s.db.Complete(ctx, id, j.Fence, postgres.Result{Type: imageType, Size: int64(len(image)), Token: "token-of-" + string(id)})
	must(s.t, err)
	if !ok {
		s.t.Fatalf("job %s was taken away", id)
	}
	must(s.t, s.queue.Finished(id))
}

func (s *stack) fail(id job.ID, message string) {
	s.t.Helper()
	j := s.claim(id)
	ok, err := s.db.Fail(s.t.Context(), id, j.Fence, message)
	must(s.t, err)
	if !ok {
		s.t.Fatalf("job %s was taken away", id)
	}
	must(s.t, s.queue.Finished(id))
}

func (s *stack) claim(id job.ID) job.Job {
	s.t.Helper()
	j, verdict, err := s.db.Claim(s.t.Context(), id, lease)
	must(s.t, err)
	if verdict != postgres.Claimed {
		s.t.Fatalf("job %s could not be claimed: %v", id, verdict)
	}
	return j
}

// create makes a job by the API and returns its id.
func (s *stack) create(key string) job.ID {
	s.t.Helper()
	r := s.do(upload(key, "/remove-bg", "image/png", photo(s.t, "cup.png")))
	r.want(http.StatusAccepted)
	return job.ID(r.job().ID)
}

// request is one request, and how a transcript shows it.
type request struct {
	method, path string
	header       []string // "Name: value"
	body         []byte
	shown        string // instead of the body
}

func get(key, path string, header ...string) request {
	if key != "" {
		header = append(header, "Authorization: Bearer "+key)
	}
	return request{method: http.MethodGet, path: path, header: header}
}

func upload(key, path, contentType string, body []byte, header ...string) request {
	header = append(header, "X-Api-Key: "+key, "Content-Type: "+contentType)
	return request{method: http.MethodPost, path: path, header: header, body: body}
}

func send(key, path, json string, header ...string) request {
	return upload(key, path, "application/json", []byte(json), header...)
}

// reply is a response that was read whole.
type reply struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
}

func (s *stack) do(r request) reply {
	s.t.Helper()
	return s.doBody(r, bytes.NewReader(r.body))
}

// stream is a body of a known length that nobody holds in memory.
type stream struct {
	io.Reader
	length int64
}

// doBody sends a body of its own. It goes chunked unless it is a *bytes.Reader
// or a stream.
func (s *stack) doBody(r request, body io.Reader) reply {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	out, err := http.NewRequestWithContext(ctx, r.method, s.server.URL+"/api/v1"+r.path, body)
	must(s.t, err)
	if sized, ok := body.(stream); ok {
		out.ContentLength = sized.length
	}
	for _, line := range r.header {
		name, value, _ := strings.Cut(line, ": ")
		out.Header.Add(name, value)
	}
	in, err := s.client.Do(out)
	must(s.t, err)
	defer in.Body.Close()
	data, err := io.ReadAll(in.Body)
	must(s.t, err)
	return reply{s.t, in.StatusCode, in.Header, data}
}

func (r reply) want(status int) {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("got %d, want %d: %s", r.status, status, r.body[:min(len(r.body), 1000)])
	}
}

// refused checks the status and the error code.
func (r reply) refused(status int, code string) {
	r.t.Helper()
	r.want(status)
	if got := r.error().Code; got != code {
		r.t.Errorf("got the code %s, want %s: %s", got, code, r.body)
	}
}

type errorBody struct {
	Code, Message     string
	Required, Balance *json.Number
	Retryable         *bool
}

func (r reply) error() errorBody {
	r.t.Helper()
	var envelope struct{ Error errorBody }
	r.decode(&envelope)
	return envelope.Error
}

type jobBody struct {
	ID, Task, Status, Message string
	Progress                  int
	Cost                      json.Number
	Refunded                  bool
	ResultURL                 *string `json:"result_url"`
	DownloadURL               *string `json:"download_url"`
	CreatedAt                 string  `json:"created_at"`
	UpdatedAt                 string  `json:"updated_at"`
	Billing                   *struct {
		Cost, Balance json.Number
		Currency      string
	}
}

func (r reply) job() jobBody {
	r.t.Helper()
	var j jobBody
	r.decode(&j)
	return j
}

func (r reply) decode(into any) {
	r.t.Helper()
	if err := json.Unmarshal(r.body, into); err != nil {
		r.t.Fatalf("%v in %s", err, r.body)
	}
}

func photo(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../testdata/images", name))
	must(t, err)
	return data
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
