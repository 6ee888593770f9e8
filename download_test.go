package pictor_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pictor"
)

// finished is a stand-in with one completed job, whose result is long.
func finished(t *testing.T) (s *standIn, id string, result []byte) {
	t.Helper()
	s = newStandIn()
	result = bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	job, err := connect(t, s.handler()).RemoveBackground(t.Context(), pictor.Bytes(result))
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range s.jobs {
		j.created = time.Time{} // long ago also by the clock of a bubble
	}
	return s, job.ID, result
}

// cut sends the first n bytes of an answer, and closes the connection.
func cut(h http.Handler, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		recorder := httptest.NewRecorder()
		h.ServeHTTP(recorder, r)
		for name, values := range recorder.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(recorder.Code)
		_, _ = w.Write(recorder.Body.Bytes()[:n])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

func TestDownload_writes_the_result(t *testing.T) {
	t.Parallel()
	s, id, result := finished(t)
	var out bytes.Buffer
	got, err := connect(t, s.handler()).Download(t.Context(), id, &out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(pictor.Result{Type: "image/png", Size: int64(len(result))}, got); diff != "" {
		t.Error(diff)
	}
	if !bytes.Equal(result, out.Bytes()) {
		t.Error("the bytes came changed")
	}
}

func TestDownload_goes_on_where_the_connection_broke(t *testing.T) {
	t.Parallel()
	s, id, result := finished(t)
	h := s.handler()
	withoutRanges := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Range")
		h.ServeHTTP(w, r)
	})
	for name, row := range map[string]struct {
		trouble []http.HandlerFunc
		then    http.Handler
	}{
		"once":                       {[]http.HandlerFunc{cut(h, 100_000)}, h},
		"before the first byte":      {[]http.HandlerFunc{cut(h, 0)}, h},
		"more than once":             {[]http.HandlerFunc{cut(h, 100_000), hangUp, proxyPage(502), cut(h, 1), cut(h, 100_000)}, h},
		"and ranges are not served":  {[]http.HandlerFunc{cut(h, 100_000)}, withoutRanges},
		"twice, and without a range": {[]http.HandlerFunc{cut(h, 100_000), cut(withoutRanges, 50_000)}, withoutRanges},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, troubled(row.then, row.trouble...), func(t *testing.T, client *pictor.Client) {
				var out bytes.Buffer
				got, err := client.Download(t.Context(), id, &out)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(result, out.Bytes()) || got.Size != int64(len(result)) {
					t.Errorf("%d bytes came, of %d", out.Len(), len(result))
				}
			})
		})
	}
}

func TestDownload_does_not_mix_two_results(t *testing.T) {
	t.Parallel()
	s, id, _ := finished(t)
	h := s.handler()
	for name, other := range map[string]http.HandlerFunc{
		"when it changed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "image/png")
			w.Header().Set("ETag", `"2"`)
			_, _ = io.WriteString(w, "another result")
		},
		"when the server sends another part": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "image/png")
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("Content-Range", "bytes 0-3/4")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, "part")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, troubled(other, cut(h, 1000)), func(t *testing.T, client *pictor.Client) {
				var out bytes.Buffer
				if _, err := client.Download(t.Context(), id, &out); err == nil || out.Len() != 1000 {
					t.Errorf("%d bytes, %v", out.Len(), err)
				}
			})
		})
	}
}

func TestDownload_stops_when_its_writer_fails(t *testing.T) {
	t.Parallel()
	s, id, _ := finished(t)
	full := errors.New("the disk is full")
	before := len(s.requests())
	_, err := connect(t, s.handler()).Download(t.Context(), id, failing{full})
	if !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
	if n := len(s.requests()) - before; n != 1 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestDownload_of_a_job_that_is_not_ready_is_no_wait(t *testing.T) {
	t.Parallel()
	s := newStandIn()
	s.took = time.Hour
	inBubble(t, s.handler(), func(t *testing.T, client *pictor.Client) {
		job, err := client.RemoveBackground(t.Context(), pictor.Bytes([]byte("image")))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err = client.Download(t.Context(), job.ID, io.Discard)
		if !errors.Is(err, pictor.ErrJobNotReady) || time.Since(start) != 0 {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

func TestDownload_takes_nothing_but_images(t *testing.T) {
	t.Parallel()
	client := connect(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html>Log in to this network.</html>")
	}))
	var out strings.Builder
	if _, err := client.Download(t.Context(), "7b0c1b1e-3c0f-4f0e-9d2a-0a6d3f1f2c11", &out); err == nil || out.Len() != 0 {
		t.Errorf("%q, %v", out.String(), err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
