package e2e_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	api "pictor/gen"
	"pictor/internal/apikey"
	"pictor/internal/app"
	"pictor/internal/bus"
	"pictor/internal/point"
	"pictor/internal/postgres"
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

func start(t *testing.T, balance point.Amount) *stack {
	t.Helper()
	s := &stack{log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	nats, err := bus.StartServer(t.TempDir(), 0, s.log)
	must(t, err)
	t.Cleanup(nats.Stop)
	url := pgtest.URL(t)
	s.db = pgtest.Open(t, url)
	s.stores = app.Stores{DatabaseURL: url, NATSURL: nats.URL(), BlobURL: "file://" + t.TempDir()}
	s.queue, err = bus.Connect(bus.Config{URL: nats.URL(), Name: t.Name()}, s.log)
	must(t, err)
	t.Cleanup(s.queue.Close)

	c := app.APIConfig{TempDir: t.TempDir()}
	c.Edge = app.Edge{Listen: "127.0.0.1:0", ResultsListen: "127.0.0.1:0", Keys: app.Keys{KeyPrefix: "pictor"}}
	c.OpsListen, c.Times = "127.0.0.1:0", app.Times{StuckAfter: stuckAfter, ResultTTL: resultTTL}
	s.api, err = app.NewAPI(t.Context(), c, s.stores, s.log)
	must(t, err)
	s.api.Start()
	t.Cleanup(s.api.Stop)

	s.account = pgtest.NewAccount(t, s.db, balance)
	s.client, err = api.NewClient(s.api.BaseURL, secret(pgtest.NewKey(t, s.db, s.account.ID)))
	must(t, err)
	return s
}

// work starts a worker; stop ends it as SIGTERM would.
func (s *stack) work(t *testing.T) (stop func()) {
	t.Helper()
	c := app.WorkerConfig{TempDir: t.TempDir(), Pictures: app.Pictures{
		Workers: 2, Engine: "auto", RemoveBGModel: "remove-bg", Upscale2xModel: "upscale-2x", Upscale4xModel: "upscale-4x",
	}}
	c.OpsListen = "127.0.0.1:0"
	worker, err := app.NewWorker(t.Context(), c, s.stores, s.log)
	must(t, err)
	worker.Start()
	stop = sync.OnceFunc(worker.Stop)
	t.Cleanup(stop)
	return stop
}

func (s *stack) checkInvariants(t *testing.T) {
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
