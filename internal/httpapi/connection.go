package httpapi

import (
	"context"
	"net"
	"sync/atomic"
)

// Listener makes the connections of a listener such that a body nobody looks at
// is received without being copied. The http.Server of the API should serve it,
// and must have ConnContext.
func Listener(on net.Listener) net.Listener { return listener{on} }

type listener struct{ net.Listener }

// Accept is net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		return &connection{TCPConn: tcp}, nil
	}
	return c, err
}

// connection is a TCP connection that need not copy what it receives.
type connection struct {
	*net.TCPConn
	ignored atomic.Pointer[byte] // where a buffer begins that nobody looks at
}

// Read is net.Conn. What is read into the ignored buffer may be left out: who
// reads (net/http, through a buffer of its own) hands that buffer down only for
// bytes that go nowhere else, so no byte of a next request can be lost.
func (c *connection) Read(p []byte) (int, error) {
	if len(p) > 0 && &p[0] == c.ignored.Load() {
		return discard(c.TCPConn, p)
	}
	return c.TCPConn.Read(p)
}

// ignore says that nobody looks at what is read into p from now on.
func (c *connection) ignore(p []byte) {
	if c != nil {
		c.ignored.Store(&p[0])
	}
}

// regard ends ignore.
func (c *connection) regard() {
	if c != nil {
		c.ignored.Store(nil)
	}
}

type connectionKey struct{}

// ConnContext is for the http.Server that serves Listener and Held.
func (a *API) ConnContext(ctx context.Context, c net.Conn) context.Context {
	if back, ok := c.(*returned); ok {
		ctx, c = context.WithValue(ctx, returnedKey{}, back), back.Conn
	}
	if c, ok := c.(*connection); ok {
		ctx = context.WithValue(ctx, connectionKey{}, c)
	}
	return ctx
}

// connectionOf is nil for a connection that copies what it receives.
func connectionOf(ctx context.Context) *connection {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c
}
