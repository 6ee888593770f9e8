package app_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// visitor is a client that keeps its connection, as a load balancer does, and
// repeats nothing.
type visitor struct {
	t    *testing.T
	base *url.URL
	key  string
	conn net.Conn // nil: it needs a new one
	in   *bufio.Reader
	used int // requests on the connection
}

// errRefused is of a new connection: another process can be asked.
var errRefused = errors.New("no new connection")

// ask sends a request and reads the whole answer.
func (v *visitor) ask(method, path string, body []byte) (*http.Response, []byte, error) {
	if v.conn == nil {
		conn, err := net.Dial("tcp", v.base.Host)
		if err != nil {
			return nil, nil, errors.Join(errRefused, err)
		}
		v.conn, v.in, v.used = conn, bufio.NewReader(conn), 0
		_ = conn.SetDeadline(time.Now().Add(2 * patience))
	}
	answer, data, err := v.exchange(method, path, body)
	v.used++
	if err != nil && v.used == 1 {
		// The process may go between the kernel's accept and its own.
		err = errors.Join(errRefused, err)
	}
	if err != nil || answer.Close {
		_ = v.conn.Close()
		v.conn = nil
	}
	return answer, data, err
}

func (v *visitor) exchange(method, path string, body []byte) (*http.Response, []byte, error) {
	_, err := fmt.Fprintf(v.conn, "%s %s%s HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Type: image/png\r\nContent-Length: %d\r\n\r\n%s",
		method, v.base.Path, path, v.key, len(body), body)
	if err != nil {
		return nil, nil, err
	}
	answer, err := http.ReadResponse(v.in, nil)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	return answer, data, err
}

// A connection that is closed under a client's next request costs it that
// request. So while the process leaves, every answer says that the connection
// ends with it; when the doors close, only silent connections are left, and
// those end cleanly.
func TestAPI_cuts_no_request_off_when_it_stops(t *testing.T) {
	t.Parallel()
	a, _, key := serve(t)
	stop := sync.OnceFunc(a.Stop)
	defer stop()
	base, err := url.Parse(a.BaseURL)
	if err != nil {
		t.Fatal(err)
	}
	picture, err := os.ReadFile("../../testdata/images/cup.png")
	if err != nil {
		t.Fatal(err)
	}
	created := ask(key, http.MethodPost, a.BaseURL+"/remove-bg", "image/png", picture)
	if created.status != http.StatusAccepted {
		t.Fatal(created)
	}
	job := fmt.Sprint("/jobs/", created.body["id"])

	silent := &visitor{t: t, base: base, key: key}
	if _, _, err := silent.ask(http.MethodGet, "/me", nil); err != nil {
		t.Fatal(err)
	}
	const clients, waiting = 24, 8
	var leaving, stopped atomic.Bool
	var busy, parted, all sync.WaitGroup
	for i := range clients {
		busy.Add(1)
		parted.Add(1)
		all.Go(func() {
			began, part := sync.OnceFunc(busy.Done), sync.OnceFunc(parted.Done)
			defer began()
			defer part()
			v := &visitor{t: t, base: base, key: key}
			for n := 0; !stopped.Load(); n++ {
				gone := leaving.Load()
				method, path, body := http.MethodGet, "/me", []byte(nil)
				switch {
				case i < waiting && n == 1:
					path = job + "?wait=60" // until the process leaves
				case n%3 == 2:
					method, path, body = http.MethodPost, "/remove-bg", picture
				}
				answer, data, err := v.ask(method, path, body)
				if err != nil {
					if !errors.Is(err, errRefused) || !gone {
						t.Errorf("client %d, request %d: %s %s was cut off: %v", i, n, method, path, err)
					}
					return
				}
				if answer.StatusCode >= 500 {
					t.Errorf("client %d, request %d: %s %s: %s %s", i, n, method, path, answer.Status, data)
				}
				if i < waiting && n == 1 && !bytes.Contains(data, []byte(`"queued"`)) {
					t.Errorf("client %d waited and got %s", i, data)
				}
				began()
				if gone {
					if !answer.Close {
						t.Errorf("client %d, request %d was not told that the connection ends", i, n)
					}
					part()
				}
				<-time.After(time.Millisecond) // the connection is silent for a moment
			}
		})
	}
	busy.Wait()
	until(t, "some wait", func() bool { return a.Waiting() == waiting })
	a.Leave()
	leaving.Store(true)
	if got := ask("", http.MethodGet, a.OpsURL+"/readyz", "", nil); got.status != http.StatusServiceUnavailable {
		t.Errorf("it leaves, and says that it is ready: %v", got)
	}
	parted.Wait() // nobody has a connection from before
	stop()
	stopped.Store(true)
	all.Wait()
	if b, err := silent.in.ReadByte(); err != io.EOF {
		t.Errorf("who was silent reads %q, %v; want the end", b, err)
	}
}
