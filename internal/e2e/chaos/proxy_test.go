package chaos_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
)

// errCut tells the proxy to break a connection as a dying network does: with a
// reset on both sides.
var errCut = errors.New("cut")

// rules is what stands between one process and its database. A nil field lets
// everything pass; a rule that blocks holds back its connection only. A
// statement is its text with what was bound to it behind.
type rules struct {
	// before sees a statement that the client has sent and the server has not.
	before func(ctx context.Context, statement string) error
	// after sees a statement that the server has carried out, autocommit
	// included, and whose answer the client does not have.
	after func(ctx context.Context, statement string) error
}

// postgresProxy is a TCP proxy that understands as much of Postgres' protocol
// as it takes to know which statement an exchange is: that is how a network is
// cut after COMMIT was sent and not merely at some time.
type postgresProxy struct {
	listener net.Listener
	dial     func() (net.Conn, error)
	ctx      context.Context
	stop     context.CancelFunc

	mu    sync.Mutex
	rules rules
	conns map[net.Conn]struct{}
}

func newPostgresProxy(t testing.TB, dial func() (net.Conn, error)) *postgresProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &postgresProxy{listener: l, dial: dial, ctx: ctx, stop: stop, conns: make(map[net.Conn]struct{})}
	t.Cleanup(func() {
		stop()
		_ = l.Close()
		p.reset()
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

func (p *postgresProxy) addr() string { return p.listener.Addr().String() }

// set replaces the rules for every exchange that begins now.
func (p *postgresProxy) set(r rules) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = r
}

func (p *postgresProxy) current() rules {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rules
}

// reset breaks every connection.
func (p *postgresProxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		breakOff(c)
	}
}

func (p *postgresProxy) hold(c net.Conn) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = struct{}{}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
		_ = c.Close()
	}
}

// breakOff closes with a reset where the connection has one.
func breakOff(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// serve carries one connection. lib/pq sends the next exchange only after the
// answer to the last, so one statement is under way at a time.
func (p *postgresProxy) serve(client net.Conn) {
	defer p.hold(client)()
	server, err := p.dial()
	if err != nil {
		breakOff(client) // the server is away
		return
	}
	defer p.hold(server)()
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()

	underway := make(chan string, 64)
	var answers sync.WaitGroup
	answers.Go(func() {
		err := p.answers(ctx, bufio.NewReader(server), client, underway)
		p.end(err, client, server)
		cancel()
	})
	err = p.requests(ctx, bufio.NewReader(client), server, underway)
	p.end(err, client, server)
	cancel()
	answers.Wait()
}

func (p *postgresProxy) end(err error, conns ...net.Conn) {
	for _, c := range conns {
		if errors.Is(err, errCut) {
			breakOff(c)
		} else {
			_ = c.Close()
		}
	}
}

// requests reads whole exchanges from the client and sends them on.
func (p *postgresProxy) requests(ctx context.Context, client *bufio.Reader, server io.Writer, underway chan<- string) error {
	startup, err := readStartup(client)
	if err != nil {
		return err
	}
	if err := p.pass(ctx, p.current().before, "startup"); err != nil {
		return err
	}
	if _, err := server.Write(startup); err != nil {
		return err
	}
	var exchange bytes.Buffer
	var statement string
	for {
		kind, frame, err := readFrame(client)
		if err != nil {
			return err
		}
		exchange.Write(frame)
		switch kind {
		case 'P': // Parse: name, statement, ...
			_, rest, _ := bytes.Cut(frame[5:], []byte{0})
			text, _, _ := bytes.Cut(rest, []byte{0})
			statement = string(text)
		case 'B': // Bind: names, formats, values
			statement += string(frame[5:])
		case 'Q':
			statement = string(bytes.TrimRight(frame[5:], "\x00"))
		}
		if kind != 'S' && kind != 'Q' && kind != 'X' && kind != 'p' {
			continue // the exchange ends with Sync, a simple query, a password or a farewell
		}
		if kind == 'S' || kind == 'Q' {
			if err := p.pass(ctx, p.current().before, statement); err != nil {
				return err
			}
			underway <- statement
		}
		if _, err := server.Write(exchange.Bytes()); err != nil {
			return err
		}
		exchange.Reset()
	}
}

// answers collects what the server says to one statement and sends it on at
// once. What it says unasked goes on as it comes.
func (p *postgresProxy) answers(ctx context.Context, server *bufio.Reader, client io.Writer, underway <-chan string) error {
	var answer bytes.Buffer
	for {
		kind, frame, err := readFrame(server)
		answer.Write(frame)
		if err != nil {
			_, _ = client.Write(answer.Bytes())
			return err
		}
		if kind == 'Z' { // ready for the next: this answer is whole
			select {
			case statement := <-underway:
				if err := p.pass(ctx, p.current().after, statement); err != nil {
					return err
				}
			default: // the end of the start-up
			}
		}
		if kind != 'Z' && len(underway) > 0 {
			continue
		}
		if _, err := client.Write(answer.Bytes()); err != nil {
			return err
		}
		answer.Reset()
	}
}

func (p *postgresProxy) pass(ctx context.Context, rule func(context.Context, string) error, statement string) error {
	if rule == nil {
		return nil
	}
	return rule(ctx, statement)
}

// readStartup reads the first message, which has no type.
func readStartup(r io.Reader) ([]byte, error) {
	return readBody(r, nil)
}

func readFrame(r io.Reader) (kind byte, frame []byte, err error) {
	var head [1]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	frame, err = readBody(r, head[:])
	return head[0], frame, err
}

func readBody(r io.Reader, head []byte) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > 64<<20 {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	frame := append(append(make([]byte, 0, len(head)+int(n)), head...), size[:]...)
	frame = frame[:len(head)+int(n)]
	_, err := io.ReadFull(r, frame[len(head)+4:])
	return frame, err
}

// pipe is a plain TCP proxy. The gates of its two directions are open or shut;
// a shut one holds the bytes back until it opens or the connection ends.
type pipe struct {
	listener net.Listener
	target   string
	up, down *gate // to the server, to the client

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	heard map[string]chan struct{}
}

func newPipe(t testing.TB, target string) *pipe {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pipe{listener: l, target: target, up: newGate(), down: newGate(), conns: make(map[net.Conn]struct{}), heard: make(map[string]chan struct{})}
	t.Cleanup(func() {
		_ = l.Close()
		p.up.open()
		p.down.open()
		p.reset()
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

func (p *pipe) addr() string { return p.listener.Addr().String() }

func (p *pipe) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		breakOff(c)
	}
}

// hears returns a channel that is closed when a text has gone to the client, in
// one piece.
func (p *pipe) hears(text string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	heard := make(chan struct{})
	p.heard[text] = heard
	return heard
}

func (p *pipe) listen(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for text, heard := range p.heard {
		if bytes.Contains(b, []byte(text)) {
			close(heard)
			delete(p.heard, text)
		}
	}
}

func (p *pipe) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		breakOff(client)
		return
	}
	for _, c := range []net.Conn{client, server} {
		p.mu.Lock()
		p.conns[c] = struct{}{}
		p.mu.Unlock()
		defer func() {
			p.mu.Lock()
			delete(p.conns, c)
			p.mu.Unlock()
			_ = c.Close()
		}()
	}
	var both sync.WaitGroup
	for _, way := range []struct {
		from, to net.Conn
		gate     *gate
		told     func([]byte)
	}{{client, server, p.up, func([]byte) {}}, {server, client, p.down, p.listen}} {
		both.Go(func() {
			b := make([]byte, 32<<10)
			for {
				n, err := way.from.Read(b)
				way.gate.pass()
				if n > 0 {
					if _, err := way.to.Write(b[:n]); err != nil {
						break
					}
					way.told(b[:n])
				}
				if err != nil {
					break
				}
			}
			_ = way.from.Close()
			_ = way.to.Close()
		})
	}
	both.Wait()
}

// gate is open or shut.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // closed while the gate is open
}

func newGate() *gate {
	g := &gate{opened: make(chan struct{})}
	close(g.opened)
	return g
}

func (g *gate) pass() {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	<-opened
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.opened:
		g.opened = make(chan struct{})
	default:
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.opened:
	default:
		close(g.opened)
	}
}
