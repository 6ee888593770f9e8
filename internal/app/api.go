package app

import (
	"context"
	"errors"
	"log/slog"

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

	log             *slog.Logger
	ops             *ops
	waits           *wait.Hub
	api, host, opsS *server
	sweeper         *sweep.Sweeper
	sweeping        *loop
	failed          chan error
	closers         closers
}

// APIConfig is what `pictor serve` is configured by.
type APIConfig struct {
	Edge
	Times
	Ops

	// Others are where to listen when no address is given and the default is
	// taken: `pictor dev` moves, a server does not.
	Others struct{ Listen, Results []Address } `kong:"-"`
	// TempDir holds uploads while they are checked; empty is the system's.
	TempDir string `kong:"-"`
}

// Mistakes names every mistake, not only the first.
func (c APIConfig) Mistakes() error {
	return errors.Join(c.Edge.Mistakes(), c.Times.Mistakes(), c.Ops.Mistakes())
}

// NewAPI puts the API together, on listeners that are open already.
func NewAPI(ctx context.Context, c APIConfig, stores Stores, log *slog.Logger) (_ *API, err error) {
	a := &API{log: log, ops: new(ops), sweeping: new(loop), failed: make(chan error, 3)}
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
	p, opened, err := openParts(ctx, stores, name, log)
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
	edge, err := httpapi.New(httpapi.Config{BaseURL: a.BaseURL, ResultsURL: a.ResultsURL, KeyPrefix: c.KeyPrefix, ResultTTL: c.ResultTTL},
		p.db, in, admission.New(p.db, p.store, p.queue, log), a.waits, p.store, log)
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
	rounds.StuckAfter, rounds.ResultTTL = c.StuckAfter, c.ResultTTL
	a.ops.checks = p.checks()
	a.api.http.Handler = edge
	a.host.http.Handler = results.New(p.db, p.store, c.ResultTTL, log)
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
	return nil
}

// Start opens the doors. Failed tells when one of them cannot stay open.
func (a *API) Start() {
	for _, s := range []*server{a.opsS, a.host, a.api} {
		go func() { a.failed <- s.serve() }()
	}
	a.sweeping.run(a.sweeper.Run)
	a.ops.ready.Store(true)
	a.log.Info("the API is up", "base_url", a.BaseURL, "results_url", a.ResultsURL, "ops_url", a.OpsURL)
}

// Failed delivers the error of a server that cannot go on, and nil for each
// that was stopped.
func (a *API) Failed() <-chan error { return a.failed }

// Stop closes the doors in order: nobody is sent here any more, whoever waits
// is answered with the job as it is now, and running requests end.
func (a *API) Stop() {
	a.ops.ready.Store(false)
	a.waits.Close()
	a.api.stop(a.log)
	a.host.stop(a.log)
	a.sweeping.stop()
	a.opsS.stop(a.log)
	a.closers.close()
	a.log.Info("the API has stopped")
}

// Run serves until ctx is done or a server cannot go on.
func (a *API) Run(ctx context.Context) error {
	a.Start()
	var err error
	select {
	case <-ctx.Done():
	case err = <-a.failed:
	}
	a.Stop()
	return err
}
