package pictor_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pictor"
)

// TestMain gives the examples a server and a key, as a shell would.
func TestMain(m *testing.M) {
	server := httptest.NewServer(newStandIn().handler())
	for name, value := range map[string]string{"PICTOR_BASE_URL": server.URL, "PICTOR_API_KEY": keyOfStandIn} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	server.Close()
	os.Exit(code)
}

// connect serves h on loopback and gives a client of it.
func connect(t *testing.T, h http.Handler, options ...pictor.Option) *pictor.Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return newClient(t, server.URL, keyOfStandIn, options...)
}

func newClient(t *testing.T, base, key string, options ...pictor.Option) *pictor.Client {
	t.Helper()
	client, err := pictor.New(base, key, options...)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// inBubble runs a test with h behind pipes and with a clock that jumps, so that
// pauses and long polls take no time. It says how long they would have.
func inBubble(t *testing.T, h http.Handler, test func(t *testing.T, client *pictor.Client), options ...pictor.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		pipes := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		server := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
		go func() {
			if err := server.Serve(pipes); !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		}()
		transport := &http.Transport{DialContext: pipes.dial}
		defer func() {
			<-time.After(time.Hour) // handlers that still hold a request come to their end
			transport.CloseIdleConnections()
			if err := server.Close(); err != nil {
				t.Error(err)
			}
		}()
		options = append(options, pictor.WithHTTPClient(&http.Client{Transport: transport}))
		test(t, newClient(t, "http://pictor.test/api/v1/", keyOfStandIn, options...))
	})
}

// pipes is a network of its own.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { close(p.done); return nil }

func (p *pipes) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// troubled puts trouble before the first requests, one after the other, and
// then lets them pass to h.
func troubled(h http.Handler, trouble ...http.HandlerFunc) http.Handler {
	var n atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i := int(n.Add(1)); i <= len(trouble) {
			trouble[i-1](w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// proxyPage is what a proxy says when the server is down.
func proxyPage(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "<html><body><h1>"+http.StatusText(status)+"</h1></body></html>")
	}
}

// refuses is an answer in the API's envelope.
func refuses(status int, retryAfter, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set("X-Request-Id", "request-of-the-test")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// hangUp closes the connection without an answer.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// afterwards lets a request pass to h, and then loses the answer.
func afterwards(h http.Handler) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
}
