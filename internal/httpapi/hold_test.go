package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/job"
)

// line is a client's own connection, on which it decides what is sent when.
type line struct {
	net.Conn
	t  testing.TB
	in *bufio.Reader
}

func (s *stack) line() *line {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.server.Listener.Addr().String())
	must(s.t, err)
	return newLine(s.t, conn)
}

func newLine(t testing.TB, conn net.Conn) *line {
	t.Helper()
	t.Cleanup(func() { _ = conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(2*time.Minute)))
	return &line{conn, t, bufio.NewReader(conn)}
}

// send sends a request. first is its method and path, more its header beyond
// the key.
func (l *line) send(first, key, body string, more ...string) {
	l.t.Helper()
	method, path, _ := strings.Cut(first, " ")
	path, version, given := strings.Cut(path, " ")
	if !given {
		version = "HTTP/1.1"
	}
	header := append([]string{"Host: x", "X-Api-Key: " + key}, more...)
	_, err := fmt.Fprintf(l, "%s /api/v1%s %s\r\n%s\r\n\r\n%s", method, path, version, strings.Join(header, "\r\n"), body)
	must(l.t, err)
}

func (l *line) upload(path, key string, image []byte, more ...string) {
	l.t.Helper()
	l.send("POST "+path, key, string(image), append(more, "Content-Type: image/png", fmt.Sprint("Content-Length: ", len(image)))...)
}

func (l *line) answer(method string) reply {
	l.t.Helper()
	in, err := http.ReadResponse(l.in, &http.Request{Method: method})
	must(l.t, err)
	defer in.Body.Close()
	body, err := io.ReadAll(in.Body)
	must(l.t, err)
	return reply{l.t, in.StatusCode, in.Header, body}
}

// ended says that the server has closed the connection.
func (l *line) ended() {
	l.t.Helper()
	if b, err := l.in.ReadByte(); err != io.EOF {
		l.t.Errorf("got %q, %v; want the end of the connection", b, err)
	}
}

// held returns when so many requests wait.
func (s *stack) held(n int) {
	s.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for over := time.After(2 * time.Minute); s.waits.Waiting() != n; {
		select {
		case <-tick.C:
		case <-over:
			s.t.Fatalf("%d requests wait, want %d", s.waits.Waiting(), n)
		}
	}
}

func (s *stack) state(id job.ID) job.State {
	s.t.Helper()
	j, err := s.db.Job(s.t.Context(), 0, id)
	must(s.t, err)
	return j.State
}

func (s *stack) settle() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	must(s.t, s.api.Settle(ctx))
}

// alike holds that two answers differ in nothing but the time.
func alike(t *testing.T, want, got reply) {
	t.Helper()
	if got.status != want.status {
		t.Errorf("status %d, want %d", got.status, want.status)
	}
	for _, r := range []reply{want, got} {
		r.header.Del("Date")
	}
	if diff := cmp.Diff(want.header, got.header); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(string(want.body), string(got.body)); diff != "" {
		t.Error(diff)
	}
}

func TestHold_answers_like_a_request_that_does_not_wait(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("5")
	l := s.line()
	for _, method := range []string{"GET", "HEAD"} {
		t.Run(method+" of a job", func(t *testing.T) {
			id := s.create(key)
			l.send(method+" /jobs/"+string(id)+"?wait=60", key, "", "X-Request-Id: mine")
			s.held(1)
			s.complete(id, job.PNG, photo(t, "cup.png"))
			held := l.answer(method)
			l.send(method+" /jobs/"+string(id), key, "", "X-Request-Id: mine")
			alike(t, l.answer(method), held)
		})
	}
	t.Run("unknown job", func(t *testing.T) {
		none := "/jobs/0190c3b0-0000-7000-8000-000000000000"
		l.send("GET "+none, key, "", "X-Request-Id: mine")
		want := l.answer("GET")
		l.send("GET "+none+"?wait=60", key, "", "X-Request-Id: mine")
		alike(t, want, l.answer("GET"))
		want.refused(http.StatusNotFound, "not_found")
	})
	t.Run("created job", func(t *testing.T) {
		names := func(r reply) []string { return slices.Sorted(maps.Keys(r.header)) }
		l.upload("/remove-bg", key, photo(t, "cup.png"))
		unheld := l.answer("POST")
		l.upload("/remove-bg?wait=1", key, photo(t, "cup.png"))
		held := l.answer("POST")
		held.want(http.StatusAccepted)
		if diff := cmp.Diff(names(unheld), names(held)); diff != "" {
			t.Errorf("its headers: %s", diff)
		}
		if got, want := held.header.Get("Location"), "/api/v1/jobs/"+held.job().ID; got != want {
			t.Errorf("Location %s, want %s", got, want)
		}
		if unheld.job().Billing.Balance != "4.7" || held.job().Billing.Balance != "4.6" {
			t.Errorf("the balances are in %s and %s", unheld.body, held.body)
		}
	})
	t.Run("repeated creation", func(t *testing.T) {
		image := photo(t, "cup.png")
		l.upload("/remove-bg", key, image, "Idempotency-Key: k")
		first := l.answer("POST").job()
		l.upload("/remove-bg?wait=60", key, image, "Idempotency-Key: k", "Expect: 100-continue")
		s.held(1)
		s.fail(job.ID(first.ID), "It was not to be.")
		if again, err := l.in.Peek(len("HTTP/1.1 100")); err != nil || string(again) != "HTTP/1.1 100" {
			t.Fatalf("got %q, %v; want to be told to continue", again, err)
		}
		l.answer("POST")
		got := l.answer("POST")
		got.want(http.StatusOK)
		if j := got.job(); j.ID != first.ID || j.Status != "failed" || got.header.Get("Idempotent-Replayed") != "true" || j.Billing.Balance != "4.5" {
			t.Errorf("got %v %s", got.header, got.body)
		}
	})
}

// What a client sends behind a request that is held, be it more than net/http
// reads at a time, is answered after it and in order. A connection may be held
// many times.
func TestHold_keeps_the_order_of_a_connection(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	first, second := s.create(key), s.create(key)
	l := s.line()
	const behind = 60 // some 8 kB of requests
	for range 2 {
		for i, id := range []job.ID{first, second} {
			l.send("GET /jobs/"+string(id)+"?wait=60", key, "", fmt.Sprint("X-Request-Id: held-", i))
			for k := range behind {
				l.send("GET /me", key, "", fmt.Sprint("X-Request-Id: ", i, "-", k))
			}
		}
		if s.state(first) == job.Queued {
			s.held(1)
			s.complete(first, job.PNG, photo(t, "cup.png"))
		}
		for i, id := range []job.ID{first, second} {
			if i == 1 && s.state(second) == job.Queued {
				s.held(1)
				s.complete(second, job.PNG, photo(t, "cup.png"))
			}
			got := l.answer("GET")
			if got.job().ID != string(id) || got.job().Status != "completed" || got.header.Get("X-Request-Id") != fmt.Sprint("held-", i) {
				t.Fatalf("first came %v %s", got.header, got.body)
			}
			for k := range behind {
				got := l.answer("GET")
				if got.status != http.StatusOK || got.header.Get("X-Request-Id") != fmt.Sprint(i, "-", k) {
					t.Fatalf("then came %v %s, want number %d", got.header, got.body, k)
				}
			}
		}
	}
	l.send("GET /jobs/"+string(first)+"?wait=60", key, "", "Connection: close")
	l.answer("GET").want(http.StatusOK)
	l.ended()
}

// What cannot be taken out of net/http waits inside of it.
func TestHold_waits_all_the_same(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	t.Run("in HTTP/1.0", func(t *testing.T) {
		id := s.create(key)
		l := s.in(t).line()
		l.send("GET /jobs/"+string(id)+"?wait=60 HTTP/1.0", key, "")
		s.held(1)
		s.complete(id, job.PNG, photo(t, "cup.png"))
		if got := l.answer("GET"); got.job().Status != "completed" {
			t.Errorf("got %s", got.body)
		}
		l.ended()
	})
	t.Run("with a body that nobody reads", func(t *testing.T) {
		id := s.create(key)
		l := s.in(t).line()
		l.send("GET /jobs/"+string(id)+"?wait=60", key, "GET /me HTTP/1.1", "Content-Length: 16")
		l.send("GET /tasks", key, "")
		s.held(1)
		s.complete(id, job.PNG, photo(t, "cup.png"))
		if got := l.answer("GET"); got.job().Status != "completed" {
			t.Errorf("got %s", got.body)
		}
		if got := l.answer("GET"); got.status != http.StatusOK || !bytes.Contains(got.body, []byte(`"tasks"`)) {
			t.Errorf("then came %d %s", got.status, got.body)
		}
	})
	t.Run("in HTTP/2", func(t *testing.T) {
		secure := httptest.NewUnstartedServer(s.api)
		secure.EnableHTTP2, secure.Config.ConnContext = true, s.api.ConnContext
		secure.StartTLS()
		defer secure.Close()
		id := s.create(key)
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, secure.URL+"/api/v1/jobs/"+string(id)+"?wait=60", nil)
		must(t, err)
		q.Header.Set("X-Api-Key", key)
		answers := make(chan reply, 1)
		go func() {
			in, err := secure.Client().Do(q)
			if err != nil {
				t.Error(err)
				close(answers)
				return
			}
			defer in.Body.Close()
			body, err := io.ReadAll(in.Body)
			if err != nil || in.ProtoMajor != 2 {
				t.Errorf("HTTP/%d, %v", in.ProtoMajor, err)
			}
			answers <- reply{t, in.StatusCode, in.Header, body}
		}()
		s.held(1)
		s.complete(id, job.PNG, photo(t, "cup.png"))
		if got := <-answers; got.t != nil && got.job().Status != "completed" {
			t.Errorf("got %s", got.body)
		}
	})
}

func TestHold_keeps_a_connection_secret(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	secure := httptest.NewUnstartedServer(s.api)
	secure.Config.ConnContext = s.api.ConnContext
	secure.StartTLS()
	go secure.Config.Serve(s.api.Held())
	defer secure.Close()
	roots := secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	conn, err := tls.Dial("tcp", secure.Listener.Addr().String(), &tls.Config{RootCAs: roots, ServerName: "example.com"})
	must(t, err)
	l := newLine(t, conn)
	for _, id := range []job.ID{s.create(key), s.create(key)} {
		l.send("GET /jobs/"+string(id)+"?wait=60", key, "")
		s.held(1)
		l.send("GET /me", key, "")
		s.complete(id, job.PNG, photo(t, "cup.png"))
		if got := l.answer("GET"); got.job().Status != "completed" {
			t.Errorf("got %s", got.body)
		}
		l.answer("GET").want(http.StatusOK)
	}
}

// A waiter costs nothing from the moment on that its client is gone.
func TestHold_ends_when_the_client_leaves(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	id := s.create(key)
	for _, row := range []struct {
		name, version string
		leave         func(l *line) error
	}{
		{"closes", "HTTP/1.1", func(l *line) error { return l.Close() }},
		{"resets", "HTTP/1.1", func(l *line) error {
			return errors.Join(l.Conn.(*net.TCPConn).SetLinger(0), l.Close())
		}},
		{"sends no more", "HTTP/1.1", func(l *line) error { return l.Conn.(*net.TCPConn).CloseWrite() }},
		{"closes, and was not taken out", "HTTP/1.0", func(l *line) error { return l.Close() }},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := s.in(t).line()
			l.send("GET /jobs/"+string(id)+"?wait=60 "+row.version, key, "")
			s.held(1)
			must(t, row.leave(l))
			s.held(0)
		})
	}
	s.settle()
}

// A proxy reuses its connections for many clients, and tells when one of them
// has left.
func TestHold_behind_a_proxy(t *testing.T) {
	t.Parallel()
	s := start(t)
	at, err := url.Parse(s.server.URL)
	must(t, err)
	transport := &http.Transport{MaxIdleConnsPerHost: 4}
	defer transport.CloseIdleConnections()
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at) }, Transport: transport, ErrorHandler: func(http.ResponseWriter, *http.Request, error) {},
	})
	defer proxy.Close()
	_, key := s.account("1")
	look := func(ctx context.Context, id job.ID) (string, error) {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, proxy.URL+"/api/v1/jobs/"+string(id)+"?wait=60", nil)
		must(t, err)
		q.Header.Set("X-Api-Key", key)
		in, err := proxy.Client().Do(q)
		if err != nil {
			return "", err
		}
		defer in.Body.Close()
		body, err := io.ReadAll(in.Body)
		return string(body), err
	}
	for range 3 {
		id := s.create(key)
		leaving, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := look(leaving, id)
			left <- err
		}()
		s.held(1)
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("who left got %v", err)
		}
		s.held(0)
		stayed := make(chan string, 1)
		go func() {
			body, err := look(t.Context(), id)
			stayed <- fmt.Sprint(body, err)
		}()
		s.held(1)
		s.complete(id, job.PNG, photo(t, "cup.png"))
		if got := <-stayed; !strings.Contains(got, `"completed"`) {
			t.Errorf("who stayed got %s", got)
		}
	}
}

// A job that was made is charged: trouble in the wait must not hide its id.
func TestHold_tells_of_a_job_whatever_happens(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	made, looking := s.line(), s.line()
	id := s.create(key)
	looking.send("GET /jobs/"+string(id)+"?wait=60", key, "")
	made.upload("/remove-bg?wait=60", key, photo(t, "cup.png"))
	s.held(2)
	must(t, s.db.Close())
	s.waits.Close()
	if got := made.answer("POST"); got.status != http.StatusAccepted || got.job().Status != "queued" {
		t.Errorf("who made a job got %d %s", got.status, got.body)
	}
	looking.answer("GET").refused(http.StatusServiceUnavailable, "unavailable")
}

func TestSettle_returns_when_everybody_is_answered(t *testing.T) {
	t.Parallel()
	s := start(t)
	var lines []*line
	for range 60 {
		_, key := s.account("1")
		for range job.MaxRunning {
			l := s.line()
			l.send("GET /jobs/"+string(s.create(key))+"?wait=60", key, "")
			lines = append(lines, l)
		}
	}
	s.held(len(lines))
	for range 3 {
		s.line().send("GET /me", "", "") // who has not read the answer yet holds nobody up
	}
	s.waits.Close()
	s.settle()
	must(t, s.server.Config.Shutdown(t.Context()))
	for _, l := range lines {
		if got := l.answer("GET"); got.status != http.StatusOK || got.job().Status != "queued" {
			t.Errorf("got %d %s", got.status, got.body)
		}
		l.ended()
	}
	s.settle()
}
