package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"pictor/internal/admission"
	"pictor/internal/httpapi"
	"pictor/internal/intake"
	"pictor/internal/results"
	"pictor/internal/sweep"
	"pictor/internal/vips"
	"pictor/internal/wait"
)

// API is `pictor serve`: the API, the public result host and a sweeper.
type API struct {
	BaseURL, ResultsURL, OpsURL string

	log                *slog.Logger
	notice             time.Duration
	ops                *ops
	metrics            *serveMetrics
	doors              *doors
	waits              *wait.Hub
	edge               *httpapi.API
	api, host, opsS    *server
	sweeper            *sweep.Sweeper
	readBooks          func(context.Context)
	sweeping, watching *loop
	failed             chan error
	closers            closers
}

// APIConfig is what `pictor serve` is configured by.
type APIConfig struct {
	Edge
	Times
	Ops
	Leave

	// Others are where to listen when no address is given and the default is
	// taken: `pictor dev` moves, a server does not.
	Others struct{ Listen, Results []Address } `kong:"-"`
	// TempDir holds uploads while they are checked; empty is the system's.
	TempDir string `kong:"-"`
}

// Mistakes names every mistake, not only the first.
func (c APIConfig) Mistakes() error {
	return errors.Join(c.Edge.Mistakes(), c.Times.Mistakes(), c.Ops.Mistakes(), c.Leave.Mistakes())
}

// NewAPI puts the API together, on listeners that are open already.
func NewAPI(ctx context.Context, c APIConfig, stores Stores, log *slog.Logger) (_ *API, err error) {
	a := &API{log: log, notice: c.StopNotice, ops: new(ops), sweeping: new(loop), watching: new(loop), failed: make(chan error, 3)}
	defer func() {
		if err != nil {
			a.closers.close()
		}
	}()
	if err := a.listen(c); err != nil {
		return nil, err
	}
	name, err := processName("api")
	if err != nil {
		return nil, err
	}
	if err := vips.Start(vips.Config{}); err != nil {
		return nil, err
	}
	traces, err := newTraces(ctx, name, log)
	if err != nil {
		return nil, err
	}
	a.closers.add(func() { traces.stop(log) })
	p, opened, err := openParts(ctx, stores, name, traces, log)
	if err != nil {
		return nil, err
	}
	a.closers.add(opened.close)
	if err := p.queue.Ensure(ctx); err != nil {
		log.Warn("the queue is not there yet; jobs are refused until it is", "error", err)
	}
	in, err := intake.New(intake.Config{Dir: c.TempDir, Allow: c.ImageURLAllow})
	if err != nil {
		return nil, err
	}
	if a.waits, err = wait.New(p.db, p.queue, log); err != nil {
		return nil, err
	}
	a.closers.add(a.waits.Close)
	a.metrics = newServeMetrics(func() float64 { return float64(a.waits.Waiting()) })
	a.doors = &doors{traces: traces, seen: a.metrics.request}
	admit := admission.New(p.db, p.store, p.queue, log)
	admit.Refunded, admit.Trace = a.metrics.queueRefund, traces.parent
	edge, err := httpapi.New(httpapi.Config{BaseURL: a.BaseURL, ResultsURL: a.ResultsURL, KeyPrefix: c.KeyPrefix, ResultTTL: c.ResultTTL, Trace: traces.parent},
		p.db, in, admit, a.waits, p.store, log)
	if err != nil {
		return nil, err
	}
	stop, err := p.queue.OnRevoked(edge.Forget)
	if err != nil {
		return nil, err
	}
	a.closers.add(stop)
	a.closers.add(p.queue.OnReconnect(edge.ForgetAll))

	rounds := sweep.Defaults()
	rounds.StuckAfter, rounds.ResultTTL, rounds.Swept = c.StuckAfter, c.ResultTTL, a.metrics.round
	a.ops.checks, a.ops.metrics = p.checks(), []*metrics{runtimeMetrics(), a.metrics.metrics}
	a.readBooks = func(ctx context.Context) { a.metrics.watch(ctx, p.db, p.queue, c.StuckAfter, log) }
	a.edge = edge
	a.api.http.Handler, a.api.http.ConnContext = a.doors.before("api", edge, edge.Route, edge.Began), edge.ConnContext
	a.host.http.Handler = a.doors.before("results", results.New(results.Config{TTL: c.ResultTTL, Redirect: c.ResultsRedirect}, p.db, p.store, log), resultRoute, func(*http.Request) time.Time { return time.Now() })
	a.sweeper = sweep.New(rounds, p.db, p.queue, p.store, log)
	return a, nil
}

// listen opens the three listeners first: a mistake in an address shows before
// anything else is started, and the URLs are known to all that follows.
func (a *API) listen(c APIConfig) error {
	open := func(name string, given Address, others ...Address) (*server, error) {
		on, err := listen(name, given, others...)
		if err != nil {
			return nil, err
		}
		a.closers.add(func() { _ = on.Close() })
		return newServer(name, on, nil, a.log), nil
	}
	var err error
	if a.api, err = open("PICTOR_LISTEN", c.Listen, append([]Address{defaultListen}, c.Others.Listen...)...); err != nil {
		return err
	}
	a.api.on = httpapi.Listener(a.api.on)
	if a.host, err = open("PICTOR_RESULTS_LISTEN", c.ResultsListen, append([]Address{defaultResults}, c.Others.Results...)...); err != nil {
		return err
	}
	if a.opsS, err = open("PICTOR_OPS_LISTEN", c.OpsListen, defaultOps, anyPort); err != nil {
		return err
	}
	a.opsS.http.Handler = a.ops.handler()
	a.BaseURL = or(c.BaseURL, a.api.url()+apiRoot)
	a.ResultsURL = or(c.ResultsURL, a.host.url())
	a.OpsURL = a.opsS.url()
	a.warnOfLinks("PICTOR_BASE_URL", c.BaseURL, a.api)
	a.warnOfLinks("PICTOR_RESULTS_URL", c.ResultsURL, a.host)
	return nil
}

// warnOfLinks warns of links that lead nowhere: a server that listens at every
// address does not know by which of them clients reach it.
func (a *API) warnOfLinks(name, given string, s *server) {
	if at, ok := s.on.Addr().(*net.TCPAddr); ok && given == "" && at.IP.IsUnspecified() {
		a.log.Warn("clients get links that lead nowhere: set "+name, "link", s.url())
	}
}

// Start opens the doors. Failed tells when one of them cannot stay open.
func (a *API) Start() {
	for _, s := range []*server{a.opsS, a.host, a.api} {
		go func() { a.failed <- s.serve() }()
	}
	go func() { _ = a.api.http.Serve(a.edge.Held()) }() // ends with the other listener of the API
	a.sweeping.run(a.sweeper.Run)
	a.watching.run(a.readBooks)
	a.ops.ready.Store(true)
	a.log.Info("the API is up", "base_url", a.BaseURL, "results_url", a.ResultsURL, "ops_url", a.OpsURL)
}

// Failed delivers the error of a server that cannot go on, and nil for each
// that was stopped.
func (a *API) Failed() <-chan error { return a.failed }

// leave says to everybody that this process is going, and goes on answering: a
// load balancer looks at /readyz only now and then, and what it still sends must
// not meet a closed door. Whoever waits is answered with the job as it is now.
func (a *API) leave() {
	a.ops.ready.Store(false)
	a.doors.leaving.Store(true)
	a.waits.Close()
}

// Stop closes the doors in order: nobody is sent here any more, whoever waits
// is answered with the job as it is now, and running requests end.
func (a *API) Stop() {
	a.leave()
	a.api.refuse()
	a.host.refuse()
	a.settle()
	a.api.stop(a.log)
	a.host.stop(a.log)
	a.sweeping.stop()
	a.watching.stop()
	a.opsS.stop(a.log)
	a.closers.close()
	a.log.Info("the API has stopped")
}

// settle returns when whoever waited has the answer.
func (a *API) settle() {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	if err := a.edge.Settle(ctx); err != nil {
		a.log.Warn("held requests were cut off", "error", err)
	}
}

// resultRoute is the pattern of a path on the result host.
func resultRoute(r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, "/r/") {
		return "/r/{token}"
	}
	return ""
}

// Run serves until ctx is done or a server cannot go on.
func (a *API) Run(ctx context.Context) error {
	a.Start()
	var err error
	select {
	case <-ctx.Done():
		a.leave()
		a.log.Info("the API stops; it still answers for a while", "notice", a.notice)
		<-time.After(a.notice)
	case err = <-a.failed:
	}
	a.Stop()
	return err
}
