package app

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// doors stand before everything that clients reach. They count what goes out,
// and while the process leaves they ask every client to come back on another
// connection, which a load balancer then makes to another process: a
// connection that is closed under a client's next request costs it that
// request.
type doors struct {
	leaving atomic.Bool
	traces  *traces
	seen    func(host, route, method string, status int, took time.Duration)
}

// before puts the doors before a handler. route names the pattern of a
// request's path; began is when it came.
func (d *doors) before(host string, next http.Handler, route func(*http.Request) string, began func(*http.Request) time.Time) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began, last := began(r), distrust(w, r)
		r, span := d.traces.request(r, host, began)
		out, whole := &outgoing{ResponseWriter: w, doors: d, last: last}, false
		defer func() {
			switch {
			case out.taken:
				answered(span, route(r), plain(r.Method), noStatus)
				return // it comes back when there is an answer
			case !whole:
				out.status = 0 // the handler broke off, and the connection with it
			case out.status == 0:
				out.status = http.StatusOK // net/http says so for a handler that says nothing
			}
			name, method := route(r), plain(r.Method)
			d.seen(host, or(name, "other"), method, out.status, time.Since(began))
			answered(span, name, method, out.status)
		}()
		next.ServeHTTP(out, r)
		whole = true
	})
}

// unreadFor is how long the rest of a body may take that no handler reads:
// net/http reads it before it answers or takes the next request, and sets no
// limit of its own. A handler that reads a body sets others as it goes.
const unreadFor = 30 * time.Second

// distrust bounds what a request can hold, and says whether its connection must
// end with it. It must when the body's end is not told by a length: a proxy in
// front that sees another end would take for one request what is two here, and
// what follows on the connection would be answered under another's name.
func distrust(w http.ResponseWriter, r *http.Request) (last bool) {
	if r.Body != nil && r.Body != http.NoBody {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadFor))
	}
	last = len(r.TransferEncoding) > 0
	r.Close = r.Close || last
	return last
}

// plain is the method, or `other` for one that no route has: a client may
// invent any.
func plain(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodOptions:
		return method
	}
	return "other"
}

// outgoing is an answer on its way.
type outgoing struct {
	http.ResponseWriter
	doors  *doors
	status int  // 0 until the header is out
	taken  bool // out of net/http
	last   bool // on its connection
}

// Hijack is http.Hijacker.
func (o *outgoing) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := http.NewResponseController(o.ResponseWriter).Hijack()
	o.taken = err == nil
	return conn, buffer, err
}

// WriteHeader is http.ResponseWriter.
func (o *outgoing) WriteHeader(status int) {
	if o.status == 0 && status >= 200 {
		o.status = status
		if o.last || o.doors.leaving.Load() {
			o.Header().Set("Connection", "close")
		}
	}
	o.ResponseWriter.WriteHeader(status)
}

// Write is http.ResponseWriter.
func (o *outgoing) Write(p []byte) (int, error) {
	if o.status == 0 {
		o.WriteHeader(http.StatusOK)
	}
	return o.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (o *outgoing) Unwrap() http.ResponseWriter { return o.ResponseWriter }
