// Package httpapi is the HTTP edge: it knows status codes, headers, JSON names
// and Asia/Ho_Chi_Minh, and nothing else in internal/ does.
//
// A request passes edge.go (request id, CORS, HEAD, panics, log) and body.go
// (size, speed, memory), then ogen's server, which asks auth.go for the key and
// decodes, then one handler, which reads as the story of its operation. What
// any of them refuses is a fault.Error; errors.go holds the one table that
// gives it a status.
//
// Refusals come in this order: key, media type, syntax, options, size, image,
// running jobs, balance.
package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // Asia/Ho_Chi_Minh where the system has no zone files

	"golang.org/x/sync/semaphore"

	api "pictor/gen"
	"pictor/internal/admission"
	"pictor/internal/blob"
	"pictor/internal/intake"
	"pictor/internal/postgres"
	"pictor/internal/wait"
	"pictor/openapi"
)

// Config describes the edge.
type Config struct {
	BaseURL    string        // public root of the API; its path ends in /api/v1
	ResultsURL string        // public root of the result host
	KeyPrefix  string        // of API keys, without the underscore
	ResultTTL  time.Duration // how long a result is kept
	KeyCache   time.Duration // how long a key is trusted without a look-up; at most, and by default, 60 s
	JSONMemory int64         // bytes of memory that JSON bodies may take together; 512 MiB by default
	AnswerTime time.Duration // for an answer that is no result to reach its client; 30 s by default

	// Trace, when set, names the trace that a request belongs to as the header
	// Traceparent does, "" for none.
	Trace func(context.Context) string
}

const (
	maxKeyCache       = 60 * time.Second
	defaultJSONMemory = 512 << 20
	zone              = "Asia/Ho_Chi_Minh" // of every time in the API
)

// API is the handler of the whole API.
type API struct {
	config    Config
	db        *postgres.DB
	intake    *intake.Intake
	admission *admission.Admission
	waits     *wait.Hub
	store     *blob.Store
	log       *slog.Logger

	base, results *url.URL
	zone          *time.Location
	document      []byte // openapi.json as it is served
	keys          *keyCache
	memory        *semaphore.Weighted // see body.reserve
	held          *returns
	buffers       sync.Pool // for refuseUpload
	routes        *api.Server
}

// New wires the edge.
func New(c Config, db *postgres.DB, in *intake.Intake, ad *admission.Admission, waits *wait.Hub, store *blob.Store, log *slog.Logger) (*API, error) {
	if c.KeyCache == 0 {
		c.KeyCache = maxKeyCache
	}
	if c.AnswerTime == 0 {
		c.AnswerTime = headStart
	}
	if c.Trace == nil {
		c.Trace = func(context.Context) string { return "" }
	}
	if c.JSONMemory == 0 {
		c.JSONMemory = defaultJSONMemory
	}
	a := &API{config: c, db: db, intake: in, admission: ad, waits: waits, store: store, log: log, held: newReturns()}
	a.buffers.New = func() any { b := make([]byte, 256<<10); return &b }
	if err := a.prepare(); err != nil {
		return nil, err
	}
	routes, err := api.NewServer(a, a, a,
		api.WithPathPrefix(openapi.Prefix),
		api.WithNotFound(a.unknownPath),
		api.WithMethodNotAllowed(a.wrongMethod),
		api.WithErrorHandler(a.handleError),
		api.WithMaxMultipartMemory(formMemory),
	)
	if err != nil {
		return nil, fmt.Errorf("wire the routes: %w", err)
	}
	a.routes = routes
	return a, nil
}

// Route is the pattern of the path that a request is for, such as /jobs/{id},
// and "" when there is none.
func (a *API) Route(r *http.Request) string {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	route, _ := a.routes.FindPath(method, r.URL)
	return route.PathPattern()
}

func (a *API) prepare() (err error) {
	if a.base, err = root(a.config.BaseURL); err != nil {
		return fmt.Errorf("base URL: %w", err)
	}
	if !strings.HasSuffix(a.base.Path, openapi.Prefix) {
		return fmt.Errorf("base URL %s: its path must end in %s", a.base, openapi.Prefix)
	}
	if a.results, err = root(a.config.ResultsURL); err != nil {
		return fmt.Errorf("results URL: %w", err)
	}
	if a.config.KeyCache < 0 || a.config.KeyCache > maxKeyCache {
		return fmt.Errorf("key cache of %s: a revoked key must be refused within %s", a.config.KeyCache, maxKeyCache)
	}
	if a.zone, err = time.LoadLocation(zone); err != nil {
		return fmt.Errorf("load the time zone: %w", err)
	}
	if a.document, err = openapi.Served(a.base.String()); err != nil {
		return err
	}
	a.keys = newKeyCache(a.config.KeyCache, a.db.Authenticate)
	a.memory = semaphore.NewWeighted(a.config.JSONMemory)
	return nil
}

func root(s string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSuffix(s, "/"))
	if err != nil {
		return nil, err
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("%q is no absolute http(s) URL", s)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("it must have neither query nor fragment")
	}
	return u, nil
}

// Compile-time proof that every operation of the contract is implemented.
var (
	_ http.Handler        = (*API)(nil)
	_ api.Handler         = (*API)(nil)
	_ api.RawHandler      = (*API)(nil)
	_ api.SecurityHandler = (*API)(nil)
)
