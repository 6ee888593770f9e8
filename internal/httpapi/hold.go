package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-faster/jx"

	api "pictor/gen"
	"pictor/internal/job"
	"pictor/internal/postgres"
)

// held is a request whose answer has to wait for its job.
//
// net/http and the way to a handler keep some 35 kB for a request in progress,
// of buffers and of two goroutines with stacks that have grown. Most requests
// wait, so a held one is taken out of net/http: what stays is its connection,
// this struct, and two goroutines that hold little. When the wait is over the
// connection comes back to the server as a new one, on which the first line of
// the request arrives again, and ServeHTTP answers that. So the answer passes
// all that every answer passes, and the connection goes on as any other.
//
// What cannot be taken out (HTTP/2, HTTP/1.0, a body that was not read, a server
// without Held) waits inside of net/http, and is answered by the same code.
type held struct {
	account int64
	id      job.ID
	wait    time.Duration
	made    *postgres.Admitted // of a request that made the job

	// How the wait ended.
	job  *job.Job
	err  error
	left bool // the client, before that

	// Of a request that was taken out.
	request string // its id
	began   time.Time
	head    string // what stands for it
	done    func() // it is answered, or its connection closed
}

// await has the request held after its handler. The handler returns the error,
// and nothing that is made of that reaches the client.
func (x *exchange) await(h held) error {
	x.held = &h
	return &api.ErrorStatusCodeWithHeaders{StatusCode: http.StatusOK}
}

// hold lets the request wait and has it answered.
func (a *API) hold(x *exchange) {
	h := x.held
	if conn, early := a.takeOut(x); conn != nil {
		go a.keep(h, conn, early)
		return
	}
	x.held = nil
	ctx := x.inbound.Context()
	h.job, h.err = a.waits.For(ctx, h.account, h.id, h.wait)
	h.left = ctx.Err() != nil
	a.answer(x, h)
}

// takeOut takes the connection of a request out of net/http, with what the
// client has sent of its next request. nil: it stays, and nothing has happened.
func (a *API) takeOut(x *exchange) (conn net.Conn, early string) {
	r := x.inbound
	wholeBody := x.body == nil || x.body.err == io.EOF
	if r.ProtoMajor != 1 || r.ProtoMinor == 0 || !wholeBody || !a.held.enter() {
		return nil, ""
	}
	conn, buffer, err := http.NewResponseController(x.writer).Hijack()
	if err != nil {
		a.held.leave()
		return nil, ""
	}
	read, _ := buffer.Reader.Peek(buffer.Reader.Buffered())
	early = string(read)
	if back, ok := conn.(*returned); ok { // it was held before
		conn, early = back.Conn, early+back.unread
	}
	more := ""
	if r.Close {
		more = "Connection: close\r\n"
	}
	if trace := a.config.Trace(r.Context()); trace != "" {
		more += "Traceparent: " + trace + "\r\n"
	}
	h := x.held
	h.request, h.began, h.done = x.id, x.began, sync.OnceFunc(a.held.leave)
	h.head = fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", r.Method, r.RequestURI, r.Host, more)
	return conn, early
}

// keep waits with the connection of a held request, and gives it back. Its
// stack and its arguments are there as long as the request is held.
func (a *API) keep(h *held, conn net.Conn, early string) {
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	late := make(chan string, 1)
	go func() { late <- watch(conn, leave) }()
	h.job, h.err = a.waits.For(ctx, h.account, h.id, h.wait)
	h.left = ctx.Err() != nil
	_ = conn.SetReadDeadline(time.Unix(1, 0)) // ends the watch
	early += <-late
	_ = conn.SetReadDeadline(time.Time{})
	a.held.give(&returned{Conn: conn, unread: h.head + early, held: h, done: h.done})
}

// watch reads what a client sends while its request is held: a byte of its next
// request at most, or the end, which says that it has left.
func watch(conn net.Conn, left func()) (early string) {
	var one [1]byte
	n, err := conn.Read(one[:])
	if n == 0 && !errors.Is(err, os.ErrDeadlineExceeded) {
		left()
	}
	return string(one[:n])
}

// answer answers a request whose wait is over.
func (a *API) answer(x *exchange, h *held) {
	switch {
	case h.left:
		panic(http.ErrAbortHandler) // there is nobody to answer
	case h.made != nil:
		a.answerMade(x, h)
	case h.err != nil:
		a.refuse(x, h.err)
	default:
		body, err := a.toJob(*h.job)
		if err != nil {
			a.refuse(x, err)
			return
		}
		a.send(x, http.StatusOK, body)
	}
}

// answerMade answers a request that made its job. The job is charged and queued
// by now, so no trouble in the wait may hide its id from the client.
func (a *API) answerMade(x *exchange, h *held) {
	now := h.job
	if h.err != nil {
		a.log.WarnContext(x.inbound.Context(), "could not wait for a job", "request", x.id, "job", h.id, "account", h.account, "error", h.err)
		now = &h.made.Job
	}
	answer, err := a.created(*now, *h.made)
	if err != nil {
		a.refuse(x, err)
		return
	}
	if url, ok := answer.Location.Get(); ok {
		x.writer.Header().Set("Location", url)
	}
	if answer.IdempotentReplayed.Value {
		x.writer.Header().Set("Idempotent-Replayed", "true")
	}
	a.send(x, answer.StatusCode, &answer.Response)
}

// send does what ogen does with the answer of a handler.
func (a *API) send(x *exchange, status int, body interface {
	Validate() error
	Encode(*jx.Encoder)
}) {
	if err := body.Validate(); err != nil {
		a.refuse(x, fmt.Errorf("validate the answer: %w", err))
		return
	}
	x.writer.Header().Set("Content-Type", "application/json; charset=utf-8")
	var e jx.Encoder
	body.Encode(&e)
	x.writer.WriteHeader(status)
	_, _ = e.WriteTo(x.writer)
}
