package e2e_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"

	api "pictor/gen"
	"pictor/internal/apikey"
	"pictor/internal/app"
	"pictor/internal/bus"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/testkit/contract"
	"pictor/internal/testkit/pgtest"

	"github.com/ogen-go/ogen/ogenerrors"
)

// stack is what a company runs: an API here, workers when the test says so, a
// database, a queue and a store.
type stack struct {
	stores  app.Stores
	db      *postgres.DB
	queue   *bus.Bus
	api     *app.API
	account postgres.Account
	client  *api.Client
	log     *slog.Logger
}

// newStack has a database, a queue and a store, and nothing that uses them.
func newStack(t testing.TB) *stack {
	t.Helper()
	nats, err := bus.StartServer(t.TempDir(), 0, logOf(t))
	must(t, err)
	t.Cleanup(nats.Stop)
	return newStackOn(t, nats.URL())
}

// newStackOn does so on a queue that is there already.
func newStackOn(t testing.TB, natsURL string) *stack {
	t.Helper()
	s := &stack{log: logOf(t)}
	url := pgtest.URL(t)
	s.db = pgtest.Open(t, url)
	s.stores = app.Stores{DatabaseURL: url, NATSURL: natsURL, BlobURL: "file://" + t.TempDir()}
	var err error
	s.queue, err = bus.Connect(bus.Config{URL: natsURL, Name: t.Name()}, s.log)
	must(t, err)
	t.Cleanup(s.queue.Close)
	return s
}

func logOf(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// serve starts an API in this process.
func (s *stack) serve(t testing.TB) *app.API {
	t.Helper()
	c := app.APIConfig{TempDir: t.TempDir()}
	c.Edge = app.Edge{Listen: "127.0.0.1:0", ResultsListen: "127.0.0.1:0", Keys: app.Keys{KeyPrefix: "pictor"}}
	c.OpsListen, c.Times = "127.0.0.1:0", app.Times{StuckAfter: stuckAfter, ResultTTL: resultTTL}
	a, err := app.NewAPI(t.Context(), c, s.stores, s.log)
	must(t, err)
	a.Start()
	t.Cleanup(a.Stop)
	return a
}

// start is a stack with an API, and an account with a client.
func start(t testing.TB, balance point.Amount) *stack {
	t.Helper()
	s := newStack(t)
	s.api = s.serve(t)
	s.account = pgtest.NewAccount(t, s.db, balance)
	s.client = s.clientOf(t, s.api.BaseURL)
	return s
}

// clientOf is a client of the stack's account, with a new key.
func (s *stack) clientOf(t testing.TB, baseURL string) *api.Client {
	t.Helper()
	client, err := api.NewClient(baseURL, secret(pgtest.NewKey(t, s.db, s.account.ID)),
		api.WithClient(&http.Client{Transport: contract.NewTransport(t, http.DefaultTransport)}))
	must(t, err)
	return client
}

// work starts a worker; stop ends it as SIGTERM would.
func (s *stack) work(t testing.TB) (stop func()) {
	t.Helper()
	c := app.WorkerConfig{TempDir: t.TempDir(), Pictures: app.Pictures{
		Workers: 2, Engine: "auto", ModelChoice: app.ModelChoice{RemoveBGModel: "remove-bg", Upscale2xModel: "upscale-2x", Upscale4xModel: "upscale-4x"},
	}}
	c.OpsListen = "127.0.0.1:0"
	worker, err := app.NewWorker(t.Context(), c, s.stores, s.log)
	must(t, err)
	worker.Start()
	stop = sync.OnceFunc(worker.Stop)
	t.Cleanup(stop)
	return stop
}

func (s *stack) checkInvariants(t testing.TB) {
	t.Helper()
	violations, err := s.db.Invariants(context.WithoutCancel(t.Context()), stuckAfter)
	must(t, err)
	for _, v := range violations {
		if v.Count != 0 {
			t.Errorf("invariant %s: %d violations", v.Name, v.Count)
		}
	}
}

// secret sends the key as a bearer token.
type secret apikey.Key

func (s secret) Bearer(context.Context, api.OperationName) (api.Bearer, error) {
	return api.Bearer{Token: string(s)}, nil
}

func (s secret) APIKey(context.Context, api.OperationName) (api.APIKey, error) {
	return api.APIKey{}, ogenerrors.ErrSkipClientSecurity
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
