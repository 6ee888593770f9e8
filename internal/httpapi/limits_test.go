package httpapi_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"pictor/internal/apikey"
	"pictor/internal/httpapi"
	"pictor/internal/job"
)

// 20 MB is the size of the image, whatever envelope it comes in.
func TestCreate_limits_the_image_exact_to_the_byte(t *testing.T) {
	t.Parallel()
	s := start(t)
	exact, over := pngOfSize(t, job.MaxImageBytes), pngOfSize(t, job.MaxImageBytes+1)
	host := pictureHost(t, map[string][]byte{"/exact": exact, "/over": over})
	ways := map[string]func(key string, image []byte, name string) request{
		"raw": func(k string, image []byte, _ string) request { return upload(k, "/remove-bg", "image/png", image) },
		"form": func(k string, image []byte, _ string) request {
			return uploadForm(t, k, "/remove-bg", part{name: "image", file: strings.Repeat("long ", 100) + ".png", contentType: "image/png", data: image}, part{name: "wait", data: []byte("0")})
		},
		"base64": func(k string, image []byte, _ string) request {
			return send(k, "/remove-bg", `{"image_base64": "data:image/png;base64,`+base64.StdEncoding.EncodeToString(image)+`"}`)
		},
		"base64 in lines, with escaped slashes": func(k string, image []byte, _ string) request {
			text := base64.StdEncoding.EncodeToString(image)
			var lines []string
			for ; len(text) > 64; text = text[64:] {
				lines = append(lines, text[:64])
			}
			quoted, err := json.Marshal(strings.Join(append(lines, text), "\r\n"))
			must(t, err)
			return send(k, "/remove-bg", `{"image_base64": `+strings.ReplaceAll(string(quoted), "/", `\/`)+`}`)
		},
		"URL": func(k string, _ []byte, name string) request {
			return send(k, "/remove-bg", `{"image_url": "`+host+name+`"}`)
		},
	}
	for name, way := range ways {
		encodings := []string{"with a length", "chunked"}
		if name == "URL" || strings.Contains(name, "lines") {
			encodings = encodings[:1]
		}
		for _, encoding := range encodings {
			t.Run(name+" "+encoding, func(t *testing.T) {
				s := s.in(t)
				account, key := s.account("1")
				body := func(r request) io.Reader {
					if encoding == "chunked" {
						return io.MultiReader(bytes.NewReader(r.body))
					}
					return bytes.NewReader(r.body)
				}
				r := way(key, over, "/over")
				s.doBody(r, body(r)).refused(http.StatusRequestEntityTooLarge, "file_too_large")
				r = way(key, exact, "/exact")
				got := s.doBody(r, body(r))
				got.want(http.StatusAccepted)
				j, err := s.db.Job(t.Context(), account, job.ID(got.job().ID))
				must(t, err)
				if j.Input.Size != job.MaxImageBytes {
					t.Errorf("took %d bytes", j.Input.Size)
				}
			})
		}
	}
}

// A client that writes everything before it reads must get the answer and not
// a reset connection: net/http closes a connection that holds much unread body.
func TestCreate_lets_a_client_that_is_still_sending_see_the_refusal(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	for _, row := range []struct {
		name, path, key, contentType string
		status                       int
		code                         string
	}{
		{"no key", "/remove-bg", "", "image/png", 401, "unauthorized"},
		{"unknown key", "/remove-bg", string(apikey.New(prefix)), "image/png", 401, "invalid_key"},
		{"media type", "/remove-bg", key, "text/plain", 415, "unsupported_media_type"},
		{"option", "/remove-bg?wait=99", key, "image/png", 422, "invalid_request"},
		{"too large", "/remove-bg", key, "image/png", 413, "file_too_large"},
		{"too large JSON", "/remove-bg", key, "application/json", 413, "file_too_large"},
		{"too large form", "/remove-bg", key, "multipart/form-data; boundary=x", 413, "file_too_large"},
		{"unknown path", "/remove", key, "image/png", 404, "not_found"},
		{"wrong method", "/me", key, "image/png", 405, "method_not_allowed"},
	} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s chunked %t", row.name, chunked), func(t *testing.T) {
				t.Parallel()
				conn, err := net.Dial("tcp", s.server.Listener.Addr().String())
				must(t, err)
				defer conn.Close()
				must(t, conn.SetDeadline(time.Now().Add(2*time.Minute)))
				size := 6 << 20 // far more than net/http reads, and than the sockets hold
				if row.status == http.StatusRequestEntityTooLarge {
					size = 31 << 20
				}
				out := bufio.NewWriterSize(conn, 1<<16)
				fmt.Fprintf(out, "POST /api/v1%s HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Type: %s\r\n", row.path, row.key, row.contentType)
				data := make([]byte, 1<<20)
				if row.contentType == "application/json" {
					copy(data, `{"image_base64": "`)
				} else {
					copy(data, "--x\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a\"\r\n\r\n")
				}
				if chunked {
					fmt.Fprint(out, "Transfer-Encoding: chunked\r\n\r\n")
				} else {
					fmt.Fprintf(out, "Content-Length: %d\r\n\r\n", size)
				}
				for range size / len(data) {
					if chunked {
						fmt.Fprintf(out, "%x\r\n%s\r\n", len(data), data)
					} else if _, err := out.Write(data); err != nil {
						t.Fatalf("the connection broke while sending: %v", err)
					}
				}
				if chunked {
					fmt.Fprint(out, "0\r\n\r\n")
				}
				if err := out.Flush(); err != nil {
					t.Fatalf("the connection broke while sending: %v", err)
				}
				in, err := http.ReadResponse(bufio.NewReader(conn), nil)
				must(t, err)
				defer in.Body.Close()
				body, err := io.ReadAll(in.Body)
				must(t, err)
				reply{t, in.StatusCode, in.Header, body}.refused(row.status, row.code)
			})
		}
	}
}

// A client that asks first (Expect: 100-continue) is refused without sending.
func TestCreate_refuses_before_a_client_that_asks_first_has_sent(t *testing.T) {
	t.Parallel()
	s := start(t)
	conn, err := net.Dial("tcp", s.server.Listener.Addr().String())
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	fmt.Fprintf(conn, "POST /api/v1/remove-bg HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n")
	in, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer in.Body.Close()
	body, err := io.ReadAll(in.Body)
	must(t, err)
	reply{t, in.StatusCode, in.Header, body}.refused(http.StatusUnauthorized, "unauthorized")
}

// net/http cancels the context of a request whose body breaks off. An image in
// chunks was then refused with 503, as if it were our fault, by whoever looked
// at the context before it looked at the body.
func TestCreate_says_that_the_body_broke_off(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	_, poor := s.account("0")
	for _, contentType := range []string{"image/png", "application/json", "multipart/form-data; boundary=x"} {
		for name, body := range map[string]string{
			"of a length": "Content-Length: 1000\r\n\r\n--x\r\n",
			"in a chunk":  "Transfer-Encoding: chunked\r\n\r\n1000\r\n--x\r\n",
			"in chunks":   "Transfer-Encoding: chunked\r\n\r\n5\r\n--x\r\n\r\n1",
			"of no chunk": "Transfer-Encoding: chunked\r\n\r\n",
		} {
			for who, key := range map[string]string{"": key, " by who cannot pay": poor} {
				t.Run(contentType+" "+name+who, func(t *testing.T) {
					t.Parallel()
					l := s.in(t).line()
					fmt.Fprintf(l, "POST /api/v1/remove-bg HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Type: %s\r\n%s", key, contentType, body)
					must(t, l.Conn.(*net.TCPConn).CloseWrite())
					l.answer(http.MethodPost).refused(http.StatusBadRequest, "bad_request")
				})
			}
		}
	}
}

// A client that sends requests and never reads an answer is cut off: it would
// hold its connection, and what serves that, for as long as it likes.
func TestServer_cuts_off_a_client_that_does_not_read(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *httpapi.Config) { c.AnswerTime = 100 * time.Millisecond })
	l := s.line()
	must(t, l.Conn.(*net.TCPConn).SetReadBuffer(1<<12))
	requests := strings.Repeat("GET /api/v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n", 100)
	var err error
	for err == nil {
		_, err = io.WriteString(l, requests)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it still sends: %v", err)
	}
}
