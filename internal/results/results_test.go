package results_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"pictor/internal/blob"
	"pictor/internal/job"
	"pictor/internal/logctx"
	"pictor/internal/postgres"
	"pictor/internal/results"
	"pictor/internal/testkit/pgtest"
)

const token = "3q2-7wFhQm0cV9xZJt1bYk5dLr8u_aXo"

// host is the result host on a real database and a real store, with one
// finished job.
type host struct {
	db    *postgres.DB
	store *blob.Store
	job   job.Job
	image []byte
	url   string
	log   *bytes.Buffer
}

func start(t *testing.T, ttl time.Duration) *host {
	t.Helper()
	return startOn(t, "file://"+t.TempDir(), results.Config{TTL: ttl})
}

func startOn(t *testing.T, store string, c results.Config) *host {
	t.Helper()
	h := &host{db: pgtest.New(t), log: new(bytes.Buffer)}
	var err error
	if h.store, err = blob.Open(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.store.Close() })
	if h.image, err = os.ReadFile("../../testdata/images/coffee.webp"); err != nil {
		t.Fatal(err)
	}
	h.job = pgtest.Claimed(t, h.db, pgtest.NewAccount(t, h.db, 1000).ID)
	if err := h.store.Put(t.Context(), h.job.ResultKey(), job.WebP, bytes.NewReader(h.image)); err != nil {
		t.Fatal(err)
	}
	result := postgres.Result{Type: job.WebP, Size: int64(len(h.image)), Token: token}
	if done, err := h.db.Complete(t.Context(), h.job.ID, h.job.Fence, result); err != nil || !done {
		t.Fatal(done, err)
	}
	server := httptest.NewServer(results.New(c, h.db, h.store, slog.New(logctx.NewHandler(slog.NewTextHandler(h.log, nil)))))
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

func (h *host) do(t *testing.T, method, path string, header http.Header) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, h.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer.Header.Get("X-Request-Id") == "" || answer.Header.Get("Access-Control-Allow-Origin") != "*" || answer.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%s %s lacks headers that every answer has: %v", method, path, answer.Header)
	}
	return answer, body
}

// refused holds that an answer is an error in the envelope of the API.
func refused(t *testing.T, answer *http.Response, body []byte, status int, code string) {
	t.Helper()
	var envelope struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(body, &envelope); err != nil {
		t.Errorf("%q: %v", body, err)
	}
	if answer.StatusCode != status || envelope.Error.Code != code || envelope.Error.Message == "" {
		t.Errorf("answered %d %s, want %d %s", answer.StatusCode, body, status, code)
	}
	want := http.Header{"Content-Type": {"application/json; charset=utf-8"}, "Cache-Control": {"no-store"}, "Etag": nil, "Content-Disposition": nil, "Last-Modified": nil}
	for name, values := range want {
		if diff := cmp.Diff(values, answer.Header[name]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

const result = "/r/" + token + ".webp"

func TestResult_is_public_and_may_be_cached_until_it_expires(t *testing.T) {
	t.Parallel()
	h := start(t, time.Hour)
	answer, body := h.do(t, "GET", result, nil)
	if answer.StatusCode != 200 || !bytes.Equal(h.image, body) {
		t.Fatalf("status %d with %d bytes", answer.StatusCode, len(body))
	}
	age := regexp.MustCompile(`^public, max-age=(\d+), immutable$`).FindStringSubmatch(answer.Header.Get("Cache-Control"))
	if age == nil {
		t.Fatalf("Cache-Control is %q", answer.Header.Get("Cache-Control"))
	}
	if seconds, err := strconv.Atoi(age[1]); err != nil || seconds > 3600 || seconds < 3500 {
		t.Errorf("it may be cached for %d seconds, %v", seconds, err)
	}
	for name, want := range map[string]string{
		"Content-Type":                 "image/webp",
		"Content-Disposition":          `inline; filename="remove-bg.webp"`,
		"Content-Length":               strconv.Itoa(len(h.image)),
		"Accept-Ranges":                "bytes",
		"Cross-Origin-Resource-Policy": "cross-origin",
	} {
		if diff := cmp.Diff(want, answer.Header.Get(name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if strings.Contains(fmt.Sprint(answer.Header), string(h.job.ID)) {
		t.Error("the answer names the job")
	}

	head, body := h.do(t, "HEAD", result, nil)
	if head.StatusCode != 200 || len(body) != 0 || head.ContentLength != int64(len(h.image)) || head.Header.Get("ETag") != answer.Header.Get("ETag") {
		t.Errorf("HEAD gave %d with %d bytes and %v", head.StatusCode, len(body), head.Header)
	}
}

func TestResult_comes_in_parts_and_under_conditions(t *testing.T) {
	t.Parallel()
	for kind, store := range map[string]string{"folder": "file://" + t.TempDir(), "bucket": bucket(t)} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			comesInParts(t, startOn(t, store, results.Config{TTL: time.Hour}))
		})
	}
}

func comesInParts(t *testing.T, h *host) {
	first, _ := h.do(t, "HEAD", result, nil)
	etag, modified := first.Header.Get("ETag"), first.Header.Get("Last-Modified")
	size := len(h.image)
	for _, row := range []struct {
		name, value string
		status      int
		body        []byte
		contentPart string
	}{
		{"Range", "bytes=0-9", 206, h.image[:10], fmt.Sprintf("bytes 0-9/%d", size)},
		{"Range", "bytes=-7", 206, h.image[size-7:], fmt.Sprintf("bytes %d-%d/%d", size-7, size-1, size)},
		{"Range", "bytes=0-0,5-6", 200, h.image, ""},
		{"Range", "pages=1", 416, nil, ""},
		{"Range", "bytes=10000000-", 416, nil, fmt.Sprintf("bytes */%d", size)},
		{"If-None-Match", etag, 304, nil, ""},
		{"If-None-Match", `"other"`, 200, h.image, ""},
		{"If-Modified-Since", modified, 304, nil, ""},
		{"If-Match", `"other"`, 412, nil, ""},
	} {
		t.Run(row.name+" "+row.value, func(t *testing.T) {
			t.Parallel()
			answer, body := h.do(t, "GET", result, http.Header{row.name: {row.value}})
			if row.status >= 400 {
				refused(t, answer, body, row.status, "invalid_request")
			} else if answer.StatusCode != row.status || !bytes.Equal(row.body, body) {
				t.Errorf("status %d with %d bytes, want %d with %d", answer.StatusCode, len(body), row.status, len(row.body))
			}
			if diff := cmp.Diff(row.contentPart, answer.Header.Get("Content-Range")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestResult_that_is_not_there_looks_the_same_whatever_the_reason(t *testing.T) {
	t.Parallel()
	h := start(t, time.Hour)
	expired := start(t, time.Nanosecond)
	deleted := start(t, time.Hour)
	if err := deleted.store.Delete(t.Context(), deleted.job.ResultKey()); err != nil {
		t.Fatal(err)
	}
	swept := start(t, time.Hour)
	if jobs, err := swept.db.Expire(t.Context(), 0, 10); err != nil || len(jobs) != 1 {
		t.Fatal(jobs, err)
	}
	bodies := map[string]bool{}
	for _, row := range []struct {
		name string
		host *host
		path string
	}{
		{"unknown", h, "/r/" + strings.Repeat("A", 32) + ".webp"},
		{"expired", expired, result},
		{"deleted", deleted, result},
		{"swept", swept, result},
		{"with another extension", h, "/r/" + token + ".png"},
		{"without an extension", h, "/r/" + token},
		{"with two extensions", h, "/r/" + token + ".webp.webp"},
		{"with a slash", h, result + "/"},
		{"by the job", h, "/r/" + string(h.job.ID) + ".webp"},
		{"by the key", h, "/r/../" + h.job.ResultKey()},
		{"too short", h, "/r/a.webp"},
		{"with strange characters", h, "/r/" + strings.Repeat("%00'", 8) + ".webp"},
		{"too long", h, "/r/" + strings.Repeat("A", 4000) + ".webp"},
		{"the root", h, "/"},
		{"a neighbour", h, "/robots.txt"},
		{"the list of all", h, "/r/"},
		{"the list of all, without a slash", h, "/r"},
		{"by a part of the token", h, "/r/" + token[:31] + ".webp"},
	} {
		answer, body := row.host.do(t, "GET", row.path, nil)
		t.Log(row.name)
		refused(t, answer, body, 404, "not_found")
		bodies[string(body)] = true
		head, _ := row.host.do(t, "HEAD", row.path, nil)
		if head.StatusCode != 404 {
			t.Errorf("HEAD gave %d", head.StatusCode)
		}
	}
	if len(bodies) != 1 {
		t.Errorf("the answers differ: %v", bodies)
	}
}

func TestResult_can_only_be_read(t *testing.T) {
	t.Parallel()
	h := start(t, time.Hour)
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		answer, body := h.do(t, method, result, nil)
		refused(t, answer, body, 405, "method_not_allowed")
		if diff := cmp.Diff("GET, HEAD, OPTIONS", answer.Header.Get("Allow")); diff != "" {
			t.Error(diff)
		}
	}
	preflight, _ := h.do(t, "OPTIONS", result, http.Header{"Origin": {"https://shop.example"}, "Access-Control-Request-Method": {"GET"}, "Access-Control-Request-Headers": {"range"}})
	if preflight.StatusCode != 204 || preflight.Header.Get("Access-Control-Allow-Methods") != "GET, HEAD, OPTIONS" || preflight.Header.Get("Access-Control-Allow-Headers") != "*" {
		t.Errorf("the preflight answered %d with %v", preflight.StatusCode, preflight.Header)
	}
}

func TestResult_without_a_database_is_for_later(t *testing.T) {
	t.Parallel()
	h := start(t, time.Hour)
	if err := h.db.Close(); err != nil {
		t.Fatal(err)
	}
	answer, body := h.do(t, "GET", result, nil)
	var envelope struct {
		Error struct {
			Code      string
			Retryable bool
		}
	}
	if err := json.Unmarshal(body, &envelope); err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != 503 || !envelope.Error.Retryable {
		t.Errorf("answered %d %s", answer.StatusCode, body)
	}
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err != nil || seconds < 1 {
		t.Errorf("Retry-After is %q", answer.Header.Get("Retry-After"))
	}
	if strings.Contains(string(body), "sql") || !strings.Contains(h.log.String(), "closed") {
		t.Errorf("the client was told %s, the log has %s", body, h.log)
	}
}

// The operator must be able to tell whose result it was; the client must not.
func TestResult_without_a_store_is_logged_with_its_job(t *testing.T) {
	t.Parallel()
	h := start(t, time.Hour)
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	answer, body := h.do(t, "GET", result, nil)
	refused(t, answer, body, 503, "unavailable")
	log := h.log.String()
	for _, told := range []string{"job=" + string(h.job.ID), fmt.Sprint("account=", h.job.Account), "request=" + answer.Header.Get("X-Request-Id")} {
		if !strings.Contains(log, told) {
			t.Errorf("%s is not in the log: %s", told, log)
		}
	}
	if strings.Contains(log, token) {
		t.Errorf("the log has the token: %s", log)
	}
	if strings.Contains(string(body), string(h.job.ID)) {
		t.Errorf("the client was told %s", body)
	}
}

// A cache in front knows nothing but HTTP: it answers under its own name and
// path, passes on what it does not have, and keeps what it may.
func TestResult_can_be_read_through_a_cache(t *testing.T) {
	t.Parallel()
	h := start(t, time.Hour)
	origin, err := url.Parse(h.url)
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(origin)
	kept := make(map[string]*httptest.ResponseRecorder)
	var mu sync.Mutex
	cache := httptest.NewServer(http.StripPrefix("/pictures", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		answer, ok := kept[r.URL.Path]
		if !ok {
			answer = httptest.NewRecorder()
			pass.ServeHTTP(answer, r)
			if strings.HasPrefix(answer.Header().Get("Cache-Control"), "public, max-age=") {
				kept[r.URL.Path] = answer
			}
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	})))
	t.Cleanup(cache.Close)
	public := &host{url: cache.URL + "/pictures"}
	for range 2 {
		answer, body := public.do(t, "GET", result, nil)
		if answer.StatusCode != 200 || !bytes.Equal(h.image, body) || answer.Header.Get("ETag") == "" {
			t.Errorf("status %d with %d bytes", answer.StatusCode, len(body))
		}
		// The second answer comes from the cache.
		if err := h.store.Delete(t.Context(), h.job.ResultKey()); err != nil {
			t.Fatal(err)
		}
	}
	unknown := "/r/" + strings.Repeat("A", 32) + ".webp"
	answer, body := public.do(t, "GET", unknown, nil)
	refused(t, answer, body, 404, "not_found")
	mu.Lock()
	defer mu.Unlock()
	if kept[unknown] != nil {
		t.Error("the cache kept that there is no such result")
	}
}

func TestResult_is_read_from_the_bucket_itself_where_the_host_shows_the_way(t *testing.T) {
	t.Parallel()
	h := startOn(t, bucket(t), results.Config{TTL: time.Hour, Redirect: true})
	way := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := way.Get(h.url + result)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != 302 || answer.Header.Get("Cache-Control") != "no-store" || answer.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("status %d with %v", answer.StatusCode, answer.Header)
	}
	followed, err := http.Get(h.url + result)
	if err != nil {
		t.Fatal(err)
	}
	defer followed.Body.Close()
	if body, err := io.ReadAll(followed.Body); err != nil || !bytes.Equal(h.image, body) || followed.Header.Get("Content-Type") != job.WebP {
		t.Errorf("status %d with %d bytes, %v", followed.StatusCode, len(body), err)
	}
	// A signature is for one method.
	if head, _ := h.do(t, "HEAD", result, nil); head.StatusCode != 200 || head.ContentLength != int64(len(h.image)) {
		t.Errorf("HEAD gave %d", head.StatusCode)
	}
	if err := h.store.Delete(t.Context(), h.job.ResultKey()); err != nil {
		t.Fatal(err)
	}
	gone, body := h.do(t, "GET", result, nil)
	refused(t, gone, body, 404, "not_found")
}

// A bucket may have a lifecycle rule of its own.
func TestResult_that_the_bucket_expired_is_gone_like_any_other(t *testing.T) {
	t.Parallel()
	h := startOn(t, bucket(t), results.Config{TTL: time.Hour})
	if err := h.store.Delete(t.Context(), h.job.ResultKey()); err != nil {
		t.Fatal(err)
	}
	answer, body := h.do(t, "GET", result, nil)
	refused(t, answer, body, 404, "not_found")
}

// bucket is the URL of a bucket on an S3 server of the test's own.
func bucket(t *testing.T) string {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("pictor"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	t.Cleanup(server.Close)
	return "s3://pictor?region=us-east-1&use_path_style=true&endpoint=" + url.QueryEscape(server.URL)
}

func TestMain(m *testing.M) {
	// The server takes any key, but the SDK wants one.
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		if err := os.Setenv(name, "key"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
