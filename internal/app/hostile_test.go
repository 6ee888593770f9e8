package app_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pictor/internal/app"
)

// talk sends raw bytes on a connection of its own, and returns the statuses
// that come back until the server closes it.
func talk(base string, parts ...string) (statuses []int, err error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(4 * patience))
	for _, p := range parts {
		if _, err := io.WriteString(conn, p); err != nil {
			break // it is closed already
		}
	}
	for answers := bufio.NewReader(conn); ; {
		answer, err := http.ReadResponse(answers, nil)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return statuses, fmt.Errorf("after %v the connection is still open", statuses)
		}
		if err != nil {
			return statuses, nil
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		statuses = append(statuses, answer.StatusCode)
	}
}

// A client that sends nothing, or drips, is cut off: none of these connections
// may stay open. Whose picture comes too slowly is told so, before that.
func TestServers_cut_off_who_sends_too_slowly(t *testing.T) {
	t.Parallel()
	a, _, key := serve(t)
	t.Cleanup(a.Stop)
	// All at a time: each takes half a minute.
	var all sync.WaitGroup
	defer all.Wait()
	picture := "POST /api/v1/remove-bg HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\nContent-Type: image/png\r\n"
	for name, c := range map[string]struct {
		base, send string
		status     int // 0: any, or none
	}{
		"no end of the header, API":         {a.BaseURL, "GET /api/v1/tasks HTTP/1.1\r\nHost: x\r\nX-Slow: ", 0},
		"no end of the header, result host": {a.ResultsURL, "GET /r/x HTTP/1.1\r\nHost: x\r\nX-Slow: ", 0},
		"no end of the header, operator's":  {a.OpsURL, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ", 0},
		// net/http reads what a handler leaves of a body before it sends the
		// answer, and waited for these bodies for ever.
		"no body, where none is read":           {a.BaseURL, "GET /api/v1/openapi.json HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", 0},
		"no body, where none is read, with key": {a.BaseURL, "GET /api/v1/me HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\nContent-Length: 1000\r\n\r\n", 0},
		"no body on the result host":            {a.ResultsURL, "GET /r/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", 0},
		"no body of a picture":                  {a.BaseURL, picture + "Content-Length: 1000\r\n\r\n", 400},
		"no end of a chunk":                     {a.BaseURL, picture + "Transfer-Encoding: chunked\r\n\r\n100\r\nabc", 400},
		"no next chunk":                         {a.BaseURL, picture + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", 400},
	} {
		all.Go(func() {
			got, err := talk(c.base, c.send)
			if err != nil || c.status != 0 && !slices.Equal([]int{c.status}, got) {
				t.Errorf("%s: answers %v, %v, want %d", name, got, err, c.status)
			}
		})
	}
}

func TestServers_refuse_headers_without_end(t *testing.T) {
	t.Parallel()
	a, _, _ := serve(t)
	t.Cleanup(a.Stop)
	for _, base := range []string{a.BaseURL, a.ResultsURL, a.OpsURL} {
		got, err := talk(base, "GET / HTTP/1.1\r\nHost: x\r\n", strings.Repeat("X-Much: "+strings.Repeat("x", 1000)+"\r\n", 200), "\r\n")
		if err != nil || len(got) > 1 || len(got) == 1 && got[0] != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s answered %v, %v", base, got, err)
		}
	}
}

// A proxy and this server may see the end of a request in different places.
// Whatever follows on the connection must not be answered as a request then:
// here it always is one, and there must be one answer at most.
func TestServers_answer_no_smuggled_request(t *testing.T) {
	t.Parallel()
	a, _, key := serve(t)
	t.Cleanup(a.Stop)
	var all sync.WaitGroup
	defer all.Wait()
	const smuggled = "GET /api/v1/tasks HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, head := range map[string]string{
		"length and chunks":                "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunks alone":                     "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two lengths":                      "Content-Length: 0\r\nContent-Length: 5\r\n\r\n",
		"a list of lengths":                "Content-Length: 0, 5\r\n\r\n",
		"a signed length":                  "Content-Length: +0\r\n\r\n",
		"a length below zero":              "Content-Length: -1\r\n\r\n",
		"an unknown encoding":              "Transfer-Encoding: xchunked\r\n\r\n",
		"chunks in another encoding":       "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"two encodings":                    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
		"a space before the colon":         "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"a tab before the encoding":        "Transfer-Encoding:\tchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"a null in a value":                "X-Null: a\x00b\r\n\r\n",
		"a carriage return alone":          "X-Return: a\rContent-Length: 5\r\n\r\n",
		"a size of a chunk that is none":   "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
		"a size of a chunk that overflows": "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n\r\n",
	} {
		for _, request := range []string{
			"POST /api/v1/remove-bg HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nAuthorization: Bearer " + key + "\r\n",
			"POST /api/v1/remove-bg HTTP/1.1\r\nHost: x\r\n", // refused without a key, before its body is read
			"GET /api/v1/tasks HTTP/1.1\r\nHost: x\r\n",
		} {
			all.Go(func() {
				got, err := talk(a.BaseURL, request+head+smuggled)
				if err != nil || len(got) > 1 {
					t.Errorf("%s, %.30q: answers %v, %v, want one at most", name, request, got, err)
				}
			})
		}
	}
}

func TestServers_have_limits(t *testing.T) {
	t.Parallel()
	a, _, _ := serve(t)
	t.Cleanup(a.Stop)
	for name, s := range app.Servers(a) {
		if s.ReadHeaderTimeout <= 0 || s.ReadHeaderTimeout > time.Minute || s.IdleTimeout <= 0 || s.IdleTimeout > 5*time.Minute || s.MaxHeaderBytes <= 0 || s.MaxHeaderBytes > 1<<20 {
			t.Errorf("%s lets a client hold what it likes: %+v", name, s)
		}
	}
}
