package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"

	"pictor/internal/fault"
	"pictor/internal/job"
	"pictor/internal/logctx"
)

const (
	allowedMethods = "GET, HEAD, POST, OPTIONS"
	// A `*` would not cover Authorization.
	allowedHeaders = "Authorization, X-Api-Key, Content-Type, Idempotency-Key, X-Request-Id, Range, If-Range, If-None-Match, If-Modified-Since"
	exposedHeaders = "X-Request-Id, Retry-After, Content-Disposition, ETag, WWW-Authenticate, Location, Idempotent-Replayed, " +
		"Accept-Ranges, Content-Length, Content-Range, Allow, X-Should-Retry"
	preflightAge = "86400" // seconds
)

// exchange is what the handlers of one request share with the edge.
type exchange struct {
	id      string
	began   time.Time
	inbound *http.Request // as it came in: a HEAD is still a HEAD
	decoded *http.Request // the copy that ogen works on
	body    *body         // nil when the request has none
	writer  *writer
	conn    *http.ResponseController
	allowed time.Duration // for the answer to reach the client, from its header on
	account int64         // 0 until the key was checked
	looked  job.Task      // that the account may have now, "" while nobody has looked
	job     job.ID        // "" until one is made or named
	refusal *fault.Error  // what the answer says, for the log
	held    *held         // set by a handler whose answer has to wait: see hold.go
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// bodyDone lets go of the memory behind the body once the image was taken out
// of it; the request may be held long after that.
func (x *exchange) bodyDone() {
	if x.body != nil {
		x.body.finish()
		x.decoded.Body = http.NoBody
		x.body.release()
	}
}

// bodyIsEmpty is known once somebody has read.
func (x *exchange) bodyIsEmpty() bool {
	return x.body == nil || x.body.count == 0 && x.body.err == io.EOF
}

// ServeHTTP is http.Handler.
func (a *API) ServeHTTP(out http.ResponseWriter, inbound *http.Request) {
	x := &exchange{began: time.Now(), inbound: inbound, conn: http.NewResponseController(out), allowed: a.config.AnswerTime}
	x.writer = &writer{ResponseWriter: out, x: x}
	_ = x.conn.SetWriteDeadline(time.Time{}) // that of the last answer on this connection
	if h := takeHeld(inbound.Context()); h != nil {
		x.id, x.began, x.account, x.job = h.request, h.began, h.account, h.id
		defer h.done()
		defer a.finish(x)
		a.answer(x, h)
		return
	}
	x.id = requestID(inbound)
	if inbound.Body != nil && inbound.Body != http.NoBody {
		x.body = newBody(out, inbound, a.memory, a.config.JSONMemory)
	}
	defer a.finish(x)

	if inbound.Method == http.MethodOptions && inbound.Header.Get("Access-Control-Request-Method") != "" {
		preflight(x.writer)
		return
	}
	// net/http looks at the method of its own request to leave the body of a
	// HEAD out, so ogen gets its GET on a copy.
	ctx := logctx.With(inbound.Context(), slog.String("request", x.id))
	r := inbound.WithContext(context.WithValue(ctx, exchangeKey{}, x))
	if r.Method == http.MethodHead {
		r.Method = http.MethodGet
	}
	if x.body != nil {
		r.Body = x.body
	}
	x.decoded = r
	a.routes.ServeHTTP(x.writer, r)
	if x.held != nil {
		a.hold(x)
	}
}

// finish ends every request: it answers for a handler that panicked, lets go
// of what the body holds, and writes the log.
func (a *API) finish(x *exchange) {
	p := recover()
	if p != nil {
		x.held = nil
	}
	aborted := p != nil && x.writer.status != 0 || isAbort(p)
	if p != nil && !isAbort(p) {
		a.log.ErrorContext(x.inbound.Context(), "a handler panicked", "request", x.id, "panic", p, "stack", string(debug.Stack()))
		if !aborted {
			a.refuse(x, fault.Busy(fmt.Errorf("panic: %v", p)))
		}
	}
	if x.body != nil {
		x.body.release()
	}
	if x.decoded != nil && x.decoded.MultipartForm != nil {
		// net/http removes the files of its own request only.
		_ = x.decoded.MultipartForm.RemoveAll()
	}
	if x.held == nil {
		a.logRequest(x, time.Since(x.began))
	}
	if aborted {
		// The header is out and the rest is not: only a cut connection tells
		// the client.
		panic(http.ErrAbortHandler)
	}
}

func isAbort(p any) bool {
	err, ok := p.(error)
	return ok && errors.Is(err, http.ErrAbortHandler)
}

func (a *API) logRequest(x *exchange, took time.Duration) {
	level, attrs := slog.LevelInfo, []slog.Attr{
		slog.String("request", x.id),
		slog.String("method", x.inbound.Method),
		slog.String("path", x.inbound.URL.Path),
		slog.Int("status", x.writer.status),
		slog.Duration("took", took),
	}
	if x.account != 0 {
		attrs = append(attrs, slog.Int64("account", x.account))
	}
	if x.job != "" {
		attrs = append(attrs, slog.String("job", string(x.job)))
	}
	if x.refusal != nil {
		attrs = append(attrs, slog.String("code", string(x.refusal.Code)))
		if cause := x.refusal.Unwrap(); cause != nil {
			attrs = append(attrs, slog.String("cause", cause.Error()))
		}
		// A client that left while we worked is no failure of ours.
		if x.writer.status >= 500 && x.inbound.Context().Err() == nil {
			level = slog.LevelError
		}
	}
	a.log.LogAttrs(x.inbound.Context(), level, "request", attrs...)
}

// requestID is the client's own id when it is short and plain, for it ends up
// in logs, and a new one otherwise.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_.:", c)
	}
	if id == "" || len(id) > 128 || strings.ContainsFunc(id, func(c rune) bool { return !plain(c) }) {
		return uuid.NewString()
	}
	return id
}

func preflight(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", allowedMethods)
	h.Set("Access-Control-Allow-Headers", allowedHeaders)
	h.Set("Access-Control-Max-Age", preflightAge)
	w.WriteHeader(http.StatusNoContent)
}

// writer puts on every answer the headers that all of them have. It does so at
// the last moment, because ogen overwrites Access-Control-Expose-Headers. What
// ogen makes of a request that is held goes nowhere.
type writer struct {
	http.ResponseWriter
	x      *exchange
	status int // 0 until the header is out
}

// Header is http.ResponseWriter.
func (w *writer) Header() http.Header {
	if w.x.held != nil {
		return make(http.Header)
	}
	return w.ResponseWriter.Header()
}

// WriteHeader is http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	if w.status != 0 || w.x.held != nil {
		return
	}
	if status >= 200 {
		w.status = status
		if status >= 400 && w.x.body != nil {
			w.x.body.drain()
		}
		// A client that does not read must not hold the connection for ever.
		_ = w.x.conn.SetWriteDeadline(time.Now().Add(w.x.allowed))
		h := w.Header()
		h.Set("X-Request-Id", w.x.id)
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Expose-Headers", exposedHeaders)
		h.Set("X-Content-Type-Options", "nosniff")
		if h.Get("Cache-Control") == "" {
			h.Set("Cache-Control", "no-store")
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write is http.ResponseWriter.
func (w *writer) Write(p []byte) (int, error) {
	if w.x.held != nil {
		return len(p), nil
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
