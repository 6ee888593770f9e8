package pictor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pictor"
)

func TestCreate_is_repeated_with_the_same_key_and_charged_once(t *testing.T) {
	t.Parallel()
	busy := refuses(503, "7", `{"error":{"code":"billing_unavailable","message":"Later.","retryable":true}}`)
	for name, trouble := range map[string]func(h http.Handler) http.HandlerFunc{
		"when a proxy says 502": func(http.Handler) http.HandlerFunc { return proxyPage(502) },
		"when a proxy says 504": func(http.Handler) http.HandlerFunc { return proxyPage(504) },
		"when a proxy says 503 with no body": func(http.Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }
		},
		"when the server is busy": func(http.Handler) http.HandlerFunc { return busy },
		"when too many jobs run": func(http.Handler) http.HandlerFunc {
			return refuses(429, "3", `{"error":{"code":"too_many_jobs","message":"Later.","retryable":true}}`)
		},
		"when the queue is down": func(http.Handler) http.HandlerFunc {
			return refuses(502, "2", `{"error":{"code":"queue_error","message":"Later.","retryable":true}}`)
		},
		"when the connection breaks before the answer": func(http.Handler) http.HandlerFunc { return hangUp },
		"when the answer is lost":                      afterwards,
		"when the answer is cut off": func(h http.Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				recorder := httptest.NewRecorder()
				h.ServeHTTP(recorder, r)
				w.Header().Set("Content-Type", recorder.Header().Get("Content-Type"))
				w.Header().Set("Content-Length", fmt.Sprint(recorder.Body.Len()))
				_, _ = w.Write(recorder.Body.Bytes()[:20])
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, image := range []pictor.Image{pictor.File("testdata/images/chelsea.png"), pictor.Bytes([]byte("image")), pictor.Reader(strings.NewReader("image")), pictor.URL("https://example.com/cat.jpg")} {
				s := newStandIn()
				var keys, bodies []string
				passing := troubled(s.handler(), trouble(s.handler()), trouble(s.handler()))
				h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					if err != nil {
						t.Error(err)
					}
					keys, bodies = append(keys, r.Header.Get("Idempotency-Key")), append(bodies, string(body))
					r.Body = io.NopCloser(strings.NewReader(string(body)))
					passing.ServeHTTP(w, r)
				})
				inBubble(t, h, func(t *testing.T, client *pictor.Client) {
					job, err := client.RemoveBackground(t.Context(), image)
					if err != nil || job.Status != pictor.Completed {
						t.Fatalf("%+v, %v", job, err)
					}
				})
				if len(keys) != 3 || keys[0] == "" || keys[1] != keys[0] || keys[2] != keys[0] {
					t.Errorf("the keys were %q", keys)
				}
				if bodies[0] == "" || bodies[1] != bodies[0] || bodies[2] != bodies[0] {
					t.Error("the bodies differ")
				}
				if got := s.charged(); got < 0.099 || got > 0.101 {
					t.Errorf("%v Point were charged", got)
				}
			}
		})
	}
}

func TestRetry_waits_as_long_as_the_server_asks(t *testing.T) {
	t.Parallel()
	s := newStandIn()
	busy := func(after string) http.HandlerFunc {
		return refuses(503, after, `{"error":{"code":"unavailable","message":"Later.","retryable":true}}`)
	}
	h := troubled(s.handler(), busy("40"), busy("2"), busy(""), func(w http.ResponseWriter, r *http.Request) {
		// A proxy may send a date.
		w.Header().Set("Retry-After", time.Now().Add(20*time.Second).UTC().Format(http.TimeFormat))
		proxyPage(503)(w, r)
	})
	inBubble(t, h, func(t *testing.T, client *pictor.Client) {
		start := time.Now()
		if _, err := client.Me(t.Context()); err != nil {
			t.Fatal(err)
		}
		least := 40*time.Second + 2*time.Second + time.Second + 19*time.Second
		if took := time.Since(start); took < least || took > least*5/4+5*time.Second {
			t.Errorf("it took %s, want somewhat more than %s", took, least)
		}
	})
}

func TestRetry_pauses_grow_and_end(t *testing.T) {
	t.Parallel()
	n := 0
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n++; proxyPage(502)(w, r) })
	inBubble(t, h, func(t *testing.T, client *pictor.Client) {
		start := time.Now()
		_, err := client.Me(t.Context())
		var refused *pictor.Error
		if !errors.As(err, &refused) || refused.Status != 502 || !refused.Retryable || !errors.Is(err, pictor.ErrUnexpectedAnswer) {
			t.Fatalf("error %v", err)
		}
		if !strings.Contains(err.Error(), "text/html") {
			t.Errorf("the error does not say what came: %v", err)
		}
		if took := time.Since(start); n != 7 || took < 15*time.Second || took > 32*time.Second {
			t.Errorf("%d requests in %s", n, took)
		}
	})
}

func TestRetry_can_be_switched_off(t *testing.T) {
	t.Parallel()
	n := 0
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n++; proxyPage(502)(w, r) })
	client := connect(t, h, pictor.WithRetries(0))
	if _, err := client.Me(t.Context()); err == nil || n != 1 {
		t.Errorf("%d requests, %v", n, err)
	}
}

func TestRetry_does_not_outlast_its_context(t *testing.T) {
	t.Parallel()
	busy := refuses(503, "60", `{"error":{"code":"unavailable","message":"Later.","retryable":true}}`)
	inBubble(t, busy, func(t *testing.T, client *pictor.Client) {
		// A pause that the deadline would cut short is not begun: the caller
		// has the time that is left, and learns the reason.
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		start := time.Now()
		if _, err := client.Me(ctx); !errors.Is(err, pictor.ErrUnavailable) || time.Since(start) > time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}

		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		start = time.Now()
		_, err := client.Me(ctx)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, pictor.ErrUnavailable) || time.Since(start) != 10*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
	impatient := refuses(503, "3600", `{"error":{"code":"unavailable","message":"In an hour.","retryable":true}}`)
	inBubble(t, impatient, func(t *testing.T, client *pictor.Client) {
		start := time.Now()
		_, err := client.Me(t.Context())
		var refused *pictor.Error
		if !errors.As(err, &refused) || refused.RetryAfter != time.Hour || time.Since(start) != 0 {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

func TestContext_ends_an_upload_and_a_long_poll(t *testing.T) {
	t.Parallel()
	s := newStandIn()
	s.took = time.Hour
	inBubble(t, s.handler(), func(t *testing.T, client *pictor.Client) {
		created, err := client.RemoveBackground(t.Context(), pictor.Bytes([]byte("image")))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(30*time.Second, cancel)
		start := time.Now()
		if _, err := client.Wait(ctx, created.ID); !errors.Is(err, context.Canceled) || time.Since(start) != 30*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
	deaf := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-time.After(time.Minute) })
	inBubble(t, deaf, func(t *testing.T, client *pictor.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		if _, err := client.RemoveBackground(ctx, pictor.Bytes(make([]byte, 1<<20))); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 5*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

func TestClient_does_not_repeat_what_will_not_pass(t *testing.T) {
	t.Parallel()
	untrusted := httptest.NewUnstartedServer(newStandIn().handler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	client := newClient(t, untrusted.URL, keyOfStandIn)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := client.Me(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("a server with an unknown certificate: %v", err)
	}

	n := 0
	unknown := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		n++
		return nil, &net.DNSError{Err: "no such host", Name: "pictor.test", IsNotFound: true}
	}}
	client = newClient(t, "http://pictor.test", keyOfStandIn, pictor.WithHTTPClient(&http.Client{Transport: unknown}))
	if _, err := client.Me(t.Context()); err == nil || n != 1 {
		t.Errorf("a name that is unknown: %d look-ups, %v", n, err)
	}
}

func TestClient_follows_no_redirect(t *testing.T) {
	t.Parallel()
	other := newStandIn()
	elsewhere := httptest.NewServer(other.handler())
	t.Cleanup(elsewhere.Close)
	client := connect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusMovedPermanently)
	}))
	_, err := client.RemoveBackground(t.Context(), pictor.Bytes([]byte("image")))
	if !errors.Is(err, pictor.ErrUnexpectedAnswer) || !strings.Contains(err.Error(), elsewhere.URL) {
		t.Errorf("error %v, want one that names the other address", err)
	}
	if n := len(other.requests()); n != 0 {
		t.Errorf("%d requests, with the key, went to another server", n)
	}
}

func TestError_tells_what_the_server_said(t *testing.T) {
	t.Parallel()
	n := 0
	refuse := refuses(402, "", `{"error":{"code":"insufficient_balance","message":"Add Point.","required":0.15,"balance":0.05}}`)
	client := connect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n++; refuse(w, r) }))
	_, err := client.Upscale(t.Context(), pictor.Bytes([]byte("image")), 4)
	var got *pictor.Error
	if !errors.As(err, &got) {
		t.Fatal(err)
	}
	want := &pictor.Error{Code: "insufficient_balance", Status: 402, Message: "Add Point.", Required: 0.15, Balance: 0.05, RequestID: "request-of-the-test"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("pictor: upscale: insufficient_balance (402): Add Point.", err.Error()); diff != "" {
		t.Error(diff)
	}
	if n != 1 {
		t.Errorf("it was asked %d times", n)
	}
}

func TestError_knows_every_code_of_the_contract(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("openapi/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Components struct {
			Schemas struct {
				ErrorDetail struct {
					Properties struct {
						Code struct{ Description string }
					}
				}
			}
		}
	}
	if err := json.Unmarshal(file, &document); err != nil {
		t.Fatal(err)
	}
	status, sentinels := 0, map[string]*pictor.Error{}
	for _, e := range []*pictor.Error{
		pictor.ErrBadRequest, pictor.ErrUnauthorized, pictor.ErrInvalidKey, pictor.ErrInsufficientBalance, pictor.ErrAccountNotFound, pictor.ErrNotFound,
		pictor.ErrMethodNotAllowed, pictor.ErrJobNotReady, pictor.ErrJobFailed, pictor.ErrFileTooLarge, pictor.ErrUnsupportedMediaType, pictor.ErrMissingImage,
		pictor.ErrInvalidImage, pictor.ErrInvalidImageURL, pictor.ErrImageURLUnreachable, pictor.ErrInvalidRequest, pictor.ErrTooManyJobs, pictor.ErrQueueError,
		pictor.ErrBillingUnavailable, pictor.ErrUnavailable,
	} {
		sentinels[string(e.Code)] = e
	}
	found := regexp.MustCompile("(\\d{3}):|`([a-z_]+)`").FindAllStringSubmatch(document.Components.Schemas.ErrorDetail.Properties.Code.Description, -1)
	codes := 0
	for _, match := range found {
		if match[1] != "" {
			_, _ = fmt.Sscan(match[1], &status)
			continue
		}
		codes++
		sentinel := sentinels[match[2]]
		if sentinel == nil {
			t.Errorf("there is no error for %s", match[2])
			continue
		}
		client := connect(t, refuses(status, "", `{"error":{"code":"`+match[2]+`","message":"No."}}`), pictor.WithRetries(0))
		_, err := client.Me(t.Context())
		if !errors.Is(err, sentinel) {
			t.Errorf("%s came as %v", match[2], err)
		}
	}
	if codes != len(sentinels) {
		t.Errorf("the contract has %d codes, the client %d", codes, len(sentinels))
	}
}
