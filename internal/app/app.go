// Package app is where Pictor is put together: configuration, construction,
// and the order in which things start and stop. It is the only package that
// reads the environment.
//
// Every program of the binary is a constructor and a Run here:
//
//	API     pictor serve   the API, the result host, the sweeper
//	Worker  pictor worker  takes jobs from the queue
//	Stack   pictor dev     both of these, with a Postgres and a NATS of their own
//	Doctor  pictor doctor  looks at everything, once
//
// Start goes from the bottom up: database, store, queue, models, loops,
// listeners. Stop goes the other way, so that nothing is lost that a client was
// promised: not ready, no new requests, waiting clients answered, no new jobs,
// running pictures finished or given back, then everything closed.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	// drain bounds how long an answer that is being sent holds up a stop.
	drain = 20 * time.Second
	// grace bounds how long a running picture does. Those that need longer go
	// back to the queue, and their next worker begins anew. On a laptop nobody
	// waits that long for a Ctrl-C.
	grace    = 30 * time.Second
	devGrace = 3 * time.Second
)

// What a client may hold that sends nothing, or too much. Bodies and answers
// have limits of their own, which grow with their size: see httpapi/body.go and
// unreadFor.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
)

// listen opens a listener on the given address, which must be free. Where none
// is given it is the first free one of the others.
func listen(name string, given Address, others ...Address) (net.Listener, error) {
	if given != "" {
		others = []Address{given}
	}
	var failed error
	for _, address := range others {
		l, err := net.Listen("tcp", string(address))
		if err == nil {
			return l, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, fmt.Errorf("%s: %w", name, failed)
}

// server is one HTTP server on its listener.
type server struct {
	name string
	http *http.Server
	on   net.Listener

	served chan struct{} // closed when no connection is accepted any more
}

func newServer(name string, on net.Listener, handler http.Handler, log *slog.Logger) *server {
	return &server{name: name, on: on, served: make(chan struct{}), http: &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
}

func (s *server) url() string { return "http://" + s.on.Addr().String() }

// serve accepts until stop; it returns an error only when it cannot go on.
func (s *server) serve() error {
	defer close(s.served)
	if err := s.http.Serve(s.on); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serve %s: %w", s.name, err)
	}
	return nil
}

// refuse takes no new connection; those that are there go on. It returns when
// net/http knows of all of them: its Shutdown would not wait for one that was
// accepted a moment ago.
func (s *server) refuse() {
	_ = s.on.Close()
	select {
	case <-s.served:
	case <-time.After(drain): // it was never served
	}
}

// stop takes no new request and lets the running ones end.
func (s *server) stop(log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		log.Warn("requests were cut off", "server", s.name, "error", err)
		_ = s.http.Close()
	}
}

// closers closes what was opened, in reverse.
type closers []func()

func (c *closers) add(f func()) { *c = append(*c, f) }

func (c *closers) close() {
	for i := len(*c) - 1; i >= 0; i-- {
		(*c)[i]()
	}
	*c = nil
}

// loop is a function that runs until it is told to stop.
type loop struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func (l *loop) run(do func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel, l.done = cancel, make(chan struct{})
	go func() {
		defer close(l.done)
		do(ctx)
	}()
}

// stop waits for the function's end. A loop that never ran has stopped.
func (l *loop) stop() {
	if l.cancel != nil {
		l.cancel()
		<-l.done
	}
}
