package httpapi_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"pictor/internal/httpapi"
	"pictor/internal/job"
	"pictor/internal/wait"
	"pictor/openapi"
)

func TestEdge_answers_every_origin_and_exposes_what_browsers_need(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	for name, r := range map[string]reply{
		"success": s.do(get("", "/tasks", "Origin: https://app.example.com")),
		"refusal": s.do(get("", "/me")), // ogen sets the header itself here, and would hide the others
		"unknown": s.do(get("", "/nothing")),
		"created": s.do(cup(t, key, "/remove-bg")),
	} {
		if got := r.header.Get("Access-Control-Allow-Origin"); got != "*" {
			t.Errorf("%s: Access-Control-Allow-Origin is %q", name, got)
		}
		exposed := r.header.Get("Access-Control-Expose-Headers")
		for _, want := range []string{"X-Request-Id", "Retry-After", "Content-Disposition", "ETag", "WWW-Authenticate", "Location", "Idempotent-Replayed"} {
			if !strings.Contains(exposed, want) {
				t.Errorf("%s: %s is not exposed in %q", name, want, exposed)
			}
		}
	}
}

func TestEdge_answers_a_preflight_without_a_key(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, path := range []string{"/me", "/remove-bg", "/jobs/" + uuid.NewString() + "/result", "/openapi.json"} {
		r := s.do(request{method: http.MethodOptions, path: path, header: []string{
			"Origin: https://app.example.com", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization,content-type,idempotency-key",
		}})
		r.want(http.StatusNoContent)
		if got := r.header.Get("Access-Control-Allow-Methods"); !strings.Contains(got, "POST") {
			t.Errorf("%s: Access-Control-Allow-Methods is %q", path, got)
		}
		for _, want := range []string{"Authorization", "X-Api-Key", "Content-Type", "Idempotency-Key"} {
			if got := r.header.Get("Access-Control-Allow-Headers"); !strings.Contains(got, want) {
				t.Errorf("%s: Access-Control-Allow-Headers is %q, without %s", path, got, want)
			}
		}
	}
}

func TestEdge_says_which_methods_a_path_takes(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, row := range []struct{ method, path, allow string }{
		{http.MethodPost, "/me", "GET, HEAD, OPTIONS"},
		{http.MethodGet, "/upscale", "POST, OPTIONS"},
		{http.MethodHead, "/upscale", "POST, OPTIONS"},
		{http.MethodPut, "/jobs/" + uuid.NewString(), "GET, HEAD, OPTIONS"},
		{"BREW", "/tasks", "GET, HEAD, OPTIONS"},
	} {
		r := s.do(request{method: row.method, path: row.path})
		r.want(http.StatusMethodNotAllowed)
		if diff := cmp.Diff(row.allow, r.header.Get("Allow")); diff != "" {
			t.Errorf("%s %s: %s", row.method, row.path, diff)
		}
	}
	r := s.do(request{method: http.MethodOptions, path: "/upscale"})
	r.want(http.StatusNoContent)
	if diff := cmp.Diff("POST, OPTIONS", r.header.Get("Allow")); diff != "" {
		t.Error(diff)
	}
}

func TestEdge_refuses_unknown_paths_in_the_envelope(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	for _, path := range []string{"", "/", "/me/", "/Me", "/jobs", "/jobs/", "/jobs/" + uuid.NewString() + "/", "/remove-bg/x", "//me", "/%2e%2e/me"} {
		s.do(get(key, path)).refused(http.StatusNotFound, "not_found")
	}
	for _, path := range []string{"/", "/api", "/api/v2/me", "/me", "/api/v1me"} {
		r, err := http.Get(s.server.URL + path)
		must(t, err)
		defer r.Body.Close()
		if r.StatusCode != http.StatusNotFound || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
			t.Errorf("%s answered %d %s", path, r.StatusCode, r.Header.Get("Content-Type"))
		}
	}
}

func TestEdge_answers_HEAD_like_GET_without_the_body(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	id := string(s.create(key))
	for _, path := range []string{"/me", "/tasks", "/openapi.json", "/jobs/" + id, "/jobs/" + uuid.NewString(), "/jobs/" + id + "/result"} {
		want, got := s.do(get(key, path)), request{method: http.MethodHead, path: path, header: []string{"X-Api-Key: " + key}}
		head := s.do(got)
		head.want(want.status)
		if len(head.body) != 0 {
			t.Errorf("HEAD %s has a body", path)
		}
		for _, name := range []string{"Content-Type", "Content-Length", "Retry-After"} {
			if diff := cmp.Diff(want.header.Get(name), head.header.Get(name)); diff != "" {
				t.Errorf("HEAD %s: %s: %s", path, name, diff)
			}
		}
	}
}

func TestEdge_takes_a_plain_request_id_and_replaces_any_other(t *testing.T) {
	t.Parallel()
	s := start(t)
	if got := s.do(get("", "/tasks", "X-Request-Id: trace-7.b:1")).header.Get("X-Request-Id"); got != "trace-7.b:1" {
		t.Errorf("got %q", got)
	}
	for _, bad := range []string{"a b", "<script>", strings.Repeat("x", 129), "ü"} {
		got := s.do(get("", "/tasks", "X-Request-Id: "+bad)).header.Get("X-Request-Id")
		if _, err := uuid.Parse(got); err != nil {
			t.Errorf("%q was answered with %q", bad, got)
		}
	}
}

func TestOpenAPI_is_the_contract_byte_for_byte_but_for_servers(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *httpapi.Config) { c.BaseURL = "https://img.example.com/paint/api/v1" })
	r := s.do(get("", "/openapi.json"))
	r.want(http.StatusOK)
	want, err := openapi.Served("https://img.example.com/paint/api/v1")
	must(t, err)
	if !bytes.Equal(want, r.body) {
		t.Error("another document is served")
	}
}

func TestTasks_are_those_of_the_contract(t *testing.T) {
	t.Parallel()
	s := start(t)
	r := s.do(get("", "/tasks"))
	r.want(http.StatusOK)
	var document struct {
		Paths map[string]struct {
			Get struct {
				Responses map[string]struct {
					Content map[string]struct {
						Examples map[string]struct{ Value any }
					}
				}
			}
		}
	}
	must(t, json.Unmarshal(openapi.Document, &document))
	want := document.Paths["/tasks"].Get.Responses["200"].Content["application/json"].Examples["tasks"].Value
	var got any
	r.decode(&got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-contract +served:\n%s", diff)
	}
}

// The store is missing here, so that the handler of the result panics.
func TestEdge_answers_for_a_handler_that_panics(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	id := s.create(key)
	s.complete(id, job.PNG, photo(t, "cup.png"))
	log := slog.New(slog.DiscardHandler)
	waits, err := wait.New(s.db, s.queue, log)
	must(t, err)
	defer waits.Close()
	broken, err := httpapi.New(httpapi.Config{BaseURL: "http://x/api/v1", ResultsURL: results, KeyPrefix: prefix, ResultTTL: time.Hour}, s.db, nil, nil, waits, nil, log)
	must(t, err)
	s.server.Config.Handler = broken
	s.do(get(key, "/jobs/"+string(id)+"/result")).refused(http.StatusServiceUnavailable, "unavailable")
	s.do(get(key, "/me")).want(http.StatusOK)
}

func TestNew_refuses_a_base_URL_that_does_not_end_in_the_API_root(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "img.example.com/api/v1", "https://img.example.com", "https://img.example.com/api/v1?x=1", "ftp://img.example.com/api/v1"} {
		if _, err := httpapi.New(httpapi.Config{BaseURL: base, ResultsURL: results}, nil, nil, nil, nil, nil, nil); err == nil {
			t.Errorf("%q was taken", base)
		}
	}
}
