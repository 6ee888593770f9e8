package httpapi

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// returned is the connection of a held request on its way back to the server.
type returned struct {
	net.Conn
	unread string // comes before what the connection has
	held   *held  // taken by the first request
	done   func() // that of held
}

// Read is net.Conn.
func (c *returned) Read(p []byte) (int, error) {
	if c.unread == "" {
		return c.Conn.Read(p)
	}
	n := copy(p, c.unread)
	c.unread = c.unread[n:]
	return n, nil
}

// Close is net.Conn.
func (c *returned) Close() error {
	c.done()
	return c.Conn.Close()
}

// CloseWrite is what net/http ends a connection with before it closes it, so
// that the last answer is not lost.
func (c *returned) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

type returnedKey struct{}

// takeHeld is the held request that a request stands for, if it does. Requests
// of one connection come one after the other, so this needs no lock.
func takeHeld(ctx context.Context) *held {
	back, ok := ctx.Value(returnedKey{}).(*returned)
	if !ok {
		return nil
	}
	h := back.held
	back.held = nil
	return h
}

// Began is when the request came, which may be held since then.
func (a *API) Began(r *http.Request) time.Time {
	if back, ok := r.Context().Value(returnedKey{}).(*returned); ok && back.held != nil {
		return back.held.began
	}
	return time.Now()
}

// returns is the listener on which the connections of held requests come back.
type returns struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()

	mu      sync.Mutex
	open    bool          // requests may be taken out
	out     int           // requests that are, and are not answered yet
	settled chan struct{} // closed when none is, and none may be
}

func newReturns() *returns {
	l := &returns{conns: make(chan net.Conn), closed: make(chan struct{}), settled: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	return l
}

func (l *returns) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open {
		l.out++
	}
	return l.open
}

func (l *returns) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out--
	if !l.open && l.out == 0 {
		close(l.settled)
	}
}

func (l *returns) give(c net.Conn) {
	select {
	case l.conns <- c:
	case <-l.closed:
		_ = c.Close()
	}
}

// Accept is net.Listener.
func (l *returns) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close is net.Listener.
func (l *returns) Close() error {
	l.close()
	return nil
}

// Addr is net.Listener.
func (l *returns) Addr() net.Addr { return &net.UnixAddr{Name: "held requests", Net: "unix"} }

// Held is where the connections of held requests come back. The http.Server of
// the API must serve it beside its own listener, and have ConnContext.
func (a *API) Held() net.Listener {
	a.held.mu.Lock()
	defer a.held.mu.Unlock()
	a.held.open = true
	return a.held
}

// Settle takes no more requests out, and returns when all that are have been
// answered, or ctx is done. http.Server.Shutdown knows nothing of them, so it
// comes after. The waits must have been ended.
func (a *API) Settle(ctx context.Context) error {
	a.held.mu.Lock()
	a.held.open = false
	idle := a.held.out == 0
	a.held.mu.Unlock()
	if idle {
		return nil
	}
	select {
	case <-a.held.settled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
