package httpapi_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/testkit/pgtest"
)

// wire is the cable between the edge and Postgres. It can be unplugged, and it
// can lose the answer to one statement that the server has already committed.
type wire struct {
	listener net.Listener
	upstream string // Postgres's unix socket

	mu        sync.Mutex
	unplugged bool
	conns     map[net.Conn]bool

	lose atomic.Pointer[string] // part of the statement whose answer is lost
}

// plug opens a wire to the database and gives the URL that leads through it.
func plug(t testing.TB, database string) (*wire, string) {
	t.Helper()
	u, err := url.Parse(database)
	must(t, err)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	query := u.Query()
	port := query.Get("port")
	if port == "" {
		port = "5432"
	}
	w := &wire{listener: l, upstream: query.Get("host") + "/.s.PGSQL." + port, conns: map[net.Conn]bool{}}
	query.Del("host")
	query.Del("port")
	query.Set("sslmode", "disable")
	u.Host, u.RawQuery = l.Addr().String(), query.Encode()
	go w.accept()
	t.Cleanup(func() { _ = l.Close(); w.unplug() })
	return w, u.String()
}

func (w *wire) accept() {
	for {
		conn, err := w.listener.Accept()
		if err != nil {
			return
		}
		go w.carry(conn)
	}
}

func (w *wire) carry(client net.Conn) {
	defer client.Close()
	server, err := (&net.Dialer{}).DialContext(context.Background(), "unix", w.upstream)
	if err != nil {
		return
	}
	defer server.Close()
	w.mu.Lock()
	unplugged := w.unplugged
	w.conns[client], w.conns[server] = true, true
	w.mu.Unlock()
	if unplugged {
		return
	}
	var muted atomic.Bool
	go func() {
		buffer := make([]byte, 64<<10)
		for {
			n, err := client.Read(buffer)
			if part := w.lose.Load(); part != nil && bytes.Contains(buffer[:n], []byte(*part)) && w.lose.CompareAndSwap(part, nil) {
				muted.Store(true)
			}
			if _, writeErr := server.Write(buffer[:n]); err != nil || writeErr != nil {
				_ = server.Close()
				return
			}
		}
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		if err != nil || muted.Load() {
			return
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (w *wire) unplug() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unplugged = true
	for conn := range w.conns {
		_ = conn.Close()
	}
	clear(w.conns)
}

func (w *wire) replug() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unplugged = false
}

func balance(t testing.TB, s *stack, key string) string {
	t.Helper()
	r := s.do(get(key, "/me"))
	r.want(http.StatusOK)
	return string(field(t, r.body, "balance"))
}

func TestOutage_of_the_database_is_a_503_that_charges_nothing(t *testing.T) {
	t.Parallel()
	cable, through := plug(t, pgtest.URL(t))
	s := startOn(t, pgtest.Open(t, through))
	_, key := s.account("1")
	id := s.create(key)

	cable.unplug()
	s.do(cup(t, key, "/remove-bg")).refused(http.StatusServiceUnavailable, "billing_unavailable")
	s.do(cup(t, key, "/remove-bg", "Idempotency-Key: a")).refused(http.StatusServiceUnavailable, "billing_unavailable")
	for _, r := range []reply{
		s.do(get(key, "/jobs/"+string(id))), s.do(get(key, "/jobs/"+string(id)+"?wait=1")), s.do(get(key, "/jobs/"+string(id)+"/result")), s.do(get(key, "/me")),
	} {
		r.refused(http.StatusServiceUnavailable, "unavailable")
		if r.header.Get("Retry-After") != "5" || r.header.Get("X-Should-Retry") != "true" || r.error().Retryable == nil || !*r.error().Retryable {
			t.Errorf("no word on when to try again: %v %s", r.header, r.body)
		}
	}
	s.do(get("", "/tasks")).want(http.StatusOK)

	cable.replug()
	if diff := cmp.Diff("0.9", balance(t, s, key)); diff != "" {
		t.Error(diff)
	}
	r := s.do(cup(t, key, "/remove-bg", "Idempotency-Key: a")) // the refusal did not keep the key
	r.want(http.StatusAccepted)
	if r.header.Get("Idempotent-Replayed") != "" {
		t.Error("a refusal kept the Idempotency-Key")
	}
}

// The connection breaks after Postgres committed the charge and before its
// answer arrived. The client gets the job all the same, charged once.
func TestOutage_in_the_middle_of_a_charge_charges_once(t *testing.T) {
	t.Parallel()
	cable, through := plug(t, pgtest.URL(t))
	s := startOn(t, pgtest.Open(t, through))
	_, key := s.account("1")
	statement := "from admit("
	cable.lose.Store(&statement)
	s.do(cup(t, key, "/remove-bg")).want(http.StatusAccepted)
	if cable.lose.Load() != nil {
		t.Fatal("the test lost no answer")
	}
	if diff := cmp.Diff("0.9", balance(t, s, key)); diff != "" {
		t.Error(diff)
	}
}

func TestOutage_of_the_queue_is_a_502_that_charges_nothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	s.nats.Stop()
	r := s.do(cup(t, key, "/remove-bg", "Idempotency-Key: a"))
	r.refused(http.StatusBadGateway, "queue_error")
	if r.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if diff := cmp.Diff("1", balance(t, s, key)); diff != "" {
		t.Error(diff)
	}
}
