package postgres_test

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// proxy stands between the test's client and the server and loses messages of
// statements that hold a marker.
type proxy struct {
	url    string // of the same database, through the proxy
	server string // the server's socket

	mu       sync.Mutex
	marker   []byte
	answers  int  // how many answers to lose: the statement is carried out
	requests int  // how many requests to lose: the statement never arrives
	down     bool // refuse new connections once something was lost
	lost     int
}

func newProxy(t *testing.T, database string) *proxy {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{server: u.Query().Get("host") + "/.s.PGSQL." + u.Query().Get("port")}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	host, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("host", host)
	query.Set("port", port)
	u.RawQuery = query.Encode()
	p.url = u.String()
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p
}

// lose sets what happens to the next statements with the marker.
func (p *proxy) lose(marker string, answers, requests int, down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.marker, p.answers, p.requests, p.down, p.lost = []byte(marker), answers, requests, down, 0
}

func (p *proxy) losses() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// refuse says whether the network is down.
func (p *proxy) refuse() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down && p.lost > 0 && p.answers == 0 && p.requests == 0
}

// take decides over a request: pass it on, lose it, or lose its answer.
func (p *proxy) take(request []byte) (loseRequest, loseAnswer bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.marker) == 0 || !bytes.Contains(request, p.marker) {
		return false, false
	}
	switch {
	case p.requests > 0:
		p.requests--
		p.lost++
		return true, false
	case p.answers > 0:
		p.answers--
		p.lost++
		return false, true
	}
	return false, false
}

// serve carries one connection. A request of this package is one message far
// below the size of the buffer, and its answer is sent after the commit.
func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	if p.refuse() {
		return
	}
	server, err := net.Dial("unix", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	var mu sync.Mutex
	loseAnswer := false
	go func() {
		defer client.Close()
		buffer := make([]byte, 1<<16)
		for {
			n, err := server.Read(buffer)
			mu.Lock()
			lose := loseAnswer
			mu.Unlock()
			if err != nil || lose {
				return
			}
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 1<<16)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		request, answer := p.take(buffer[:n])
		if request {
			return
		}
		if answer {
			mu.Lock()
			loseAnswer = true
			mu.Unlock()
		}
		if _, err := io.Copy(server, bytes.NewReader(buffer[:n])); err != nil {
			return
		}
	}
}
