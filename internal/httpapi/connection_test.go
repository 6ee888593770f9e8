package httpapi_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"pictor/internal/job"
)

// What is left of a refused upload is received without being looked at. Here a
// client sends its next request right behind it, in pieces of any length: if
// one byte too many went unseen, the next request would be lost.
func TestRefused_upload_takes_no_byte_of_the_next_request(t *testing.T) {
	t.Parallel()
	s := start(t)
	account, key := s.account("0")
	image := pngOfSize(t, 3<<20)
	for _, size := range []int{len(image), 1 << 20, 256<<10 + 1, 128 << 10, 70_000, 64<<10 + 1, 64 << 10, 64<<10 - 1, 40_000} {
		for _, piece := range []int{size, 100_000, 4096, 1460} {
			for _, chunked := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d bytes in pieces of %d, chunked %t", size, piece, chunked), func(t *testing.T) {
					t.Parallel()
					s := s.in(t)
					l := s.line()
					var sent bytes.Buffer
					fmt.Fprintf(&sent, "POST /api/v1/upscale HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Type: image/png\r\n", key)
					if chunked {
						fmt.Fprint(&sent, "Transfer-Encoding: chunked\r\n\r\n")
						for rest := image[:size]; len(rest) > 0; {
							n := min(len(rest), piece)
							fmt.Fprintf(&sent, "%x\r\n%s\r\n", n, rest[:n])
							rest = rest[n:]
						}
						fmt.Fprint(&sent, "0\r\n\r\n")
					} else {
						fmt.Fprintf(&sent, "Content-Length: %d\r\n\r\n%s", size, image[:size])
					}
					fmt.Fprintf(&sent, "GET /api/v1/me HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\n\r\n", key)
					for sent.Len() > 0 {
						_, err := l.Write(sent.Next(piece))
						must(t, err)
					}
					l.answer(http.MethodPost).refused(http.StatusPaymentRequired, "insufficient_balance")
					l.answer(http.MethodGet).want(http.StatusOK)
					// The connection hears a small request again, too.
					l.send("GET /me", key, "")
					l.answer(http.MethodGet).want(http.StatusOK)
				})
			}
		}
	}
	if jobs, err := s.db.Jobs(t.Context(), account, 10); err != nil || len(jobs) != 0 {
		t.Errorf("%d jobs (%v), want none", len(jobs), err)
	}
}

// A connection whose request was held is another one to net/http.
func TestRefused_upload_on_a_connection_that_was_held(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("0.1")
	l := s.line()
	image := pngOfSize(t, 1<<20)
	l.upload("/remove-bg?wait=60", key, image)
	s.held(1)
	s.waits.Close()
	l.answer(http.MethodPost).want(http.StatusAccepted)
	l.upload("/remove-bg", key, image)
	l.send("GET /me", key, "")
	l.answer(http.MethodPost).refused(http.StatusPaymentRequired, "insufficient_balance")
	l.answer(http.MethodGet).want(http.StatusOK)
}

// The faults of an upload go before those of the account, although nobody looks
// at what is left of an ordinary one.
func TestRefused_upload_says_first_what_is_wrong_with_it(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, poor := s.account("0")
	_, short := s.account("0.12")
	image, over := pngOfSize(t, 1<<20), pngOfSize(t, job.MaxImageBytes+1)
	animated := append(bytes.Clone(image[:33]), "\x00\x00\x00\x08acTL\x00\x00\x00\x02\x00\x00\x00\x00\xf3\x8d\x93\x70"...)
	animated = append(animated, image[33:]...)
	file := func(data []byte) part {
		return part{name: "image", file: "a.png", contentType: "image/png", data: data}
	}
	field := func(name, value string) part { return part{name: name, data: []byte(value)} }
	for _, row := range []struct {
		name   string
		r      request
		status int
		code   string
	}{
		{"nothing", upload(poor, "/remove-bg", "image/png", image), 402, "insufficient_balance"},
		{"nothing, in a form", uploadForm(t, poor, "/remove-bg", field("wait", "5"), file(image)), 402, "insufficient_balance"},
		{"scale after the image", uploadForm(t, short, "/upscale", file(image), field("scale", "4")), 402, "insufficient_balance"},
		{"scale after the image, for an empty account", uploadForm(t, poor, "/upscale", file(image), field("scale", "4")), 402, "insufficient_balance"},
		{"scale before the image, for an empty account", uploadForm(t, poor, "/upscale", field("scale", "4"), file(image)), 402, "insufficient_balance"},
		{"scale before the image", uploadForm(t, short, "/upscale", field("scale", "4"), file(image)), 402, "insufficient_balance"},
		{"scale in the query", upload(short, "/upscale?scale=4", "image/png", image), 402, "insufficient_balance"},
		{"too large", upload(poor, "/remove-bg", "image/png", over), 413, "file_too_large"},
		{"too large in a form", uploadForm(t, poor, "/remove-bg", file(over)), 413, "file_too_large"},
		{"animated", upload(poor, "/remove-bg", "image/png", animated), 422, "invalid_image"},
		{"animated in a form", uploadForm(t, poor, "/remove-bg", file(animated)), 422, "invalid_image"},
		{"no picture", upload(poor, "/remove-bg", "image/png", image[1:]), 422, "invalid_image"},
		{"wait out of range", uploadForm(t, poor, "/remove-bg", field("wait", "61"), file(image)), 422, "invalid_request"},
		{"wait twice", uploadForm(t, poor, "/remove-bg", field("wait", "1"), field("wait", "1"), file(image)), 422, "invalid_request"},
		{"wait out of range in the query", upload(poor, "/remove-bg?wait=61", "image/png", image), 422, "invalid_request"},
		{"scale 3", uploadForm(t, poor, "/upscale", field("scale", "3"), file(image)), 422, "invalid_request"},
		{"scale 3 in the query", upload(poor, "/upscale?scale=3", "image/png", image), 422, "invalid_request"},
		{"no image in the form", uploadForm(t, poor, "/remove-bg", part{name: "picture", file: "a.png", data: image}), 422, "missing_image"},
		{"broken form", upload(poor, "/remove-bg", "multipart/form-data; boundary=x", image), 400, "bad_request"},
	} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, chunked %t", row.name, chunked), func(t *testing.T) {
				t.Parallel()
				body := io.Reader(bytes.NewReader(row.r.body))
				if chunked {
					body = io.MultiReader(body)
				}
				got := s.in(t).doBody(row.r, body)
				got.refused(row.status, row.code)
				if cost := []byte(`"required":0.15`); strings.HasPrefix(row.name, "scale") && row.status == 402 && !bytes.Contains(got.body, cost) {
					t.Errorf("got %s, want %s", got.body, cost)
				}
			})
		}
	}
	t.Run("broken off", func(t *testing.T) {
		l := s.in(t).line()
		l.send("POST /remove-bg", poor, string(image[:300_000]), "Content-Type: image/png", fmt.Sprint("Content-Length: ", len(image)))
		must(t, l.Conn.(*net.TCPConn).CloseWrite())
		l.answer(http.MethodPost).refused(http.StatusBadRequest, "bad_request")
	})
}

// A client that asks first (Expect: 100-continue) is spared the sending.
func TestRefused_upload_need_not_be_sent(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("0")
	l := s.line()
	l.send("POST /remove-bg", key, "", "Content-Type: image/png", "Content-Length: 1000000", "Expect: 100-continue")
	l.answer(http.MethodPost).refused(http.StatusPaymentRequired, "insufficient_balance")
}
