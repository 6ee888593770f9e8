package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"pictor/internal/apikey"
	"pictor/internal/point"
	"pictor/internal/testkit/parts"
	"pictor/internal/testkit/pgtest"
)

// secretQuery is the query of every image URL: who has it can read the picture.
const secretQuery = "X-Signature=c2VjcmV0"

// TestLogs_hold_no_secret_and_say_whose_they_are runs the real processes at
// their most talkative, sends keys and signed URLs in every way that works or
// does not, and reads all that was logged.
func TestLogs_hold_no_secret_and_say_whose_they_are(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.account = pgtest.NewAccount(t, s.db, 10*point.Point)
	key, unknown := string(pgtest.NewKey(t, s.db, s.account.ID)), string(apikey.New("pictor"))
	picture := parts.Picture(t, "cup.png")
	pictures := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/cup.png":
			_, _ = w.Write(picture)
		case "/moved.png":
			http.Redirect(w, r, "http://192.168.1.1/cup.png?"+r.URL.RawQuery, http.StatusFound)
		default:
			http.Error(w, "no", http.StatusNotFound)
		}
	}))
	defer pictures.Close()
	talk := []string{"PICTOR_LOG_LEVEL=debug", "PICTOR_LOG_FORMAT=json", "PICTOR_IMAGE_URL_ALLOW=127.0.0.1/32"}
	serve, worker := s.run(t, "serve", talk...), s.run(t, "worker", talk...)

	ask := func(method, path, contentType, body string, headers ...string) (status int, answer map[string]any) {
		r, err := http.NewRequestWithContext(t.Context(), method, serve.baseURL+path, strings.NewReader(body))
		must(t, err)
		r.Header.Set("Content-Type", contentType)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		response, err := http.DefaultClient.Do(r)
		must(t, err)
		defer response.Body.Close()
		b, err := io.ReadAll(response.Body)
		must(t, err)
		_ = json.Unmarshal(b, &answer)
		return response.StatusCode, answer
	}
	bearer := []string{"Authorization", "Bearer " + key}
	from := func(url string) string { return fmt.Sprintf(`{"image_url":%q,"wait":60}`, url) }
	closed := httptest.NewServer(nil)
	closed.Close()

	status, made := ask("POST", "/remove-bg", "application/json", from(pictures.URL+"/cup.png?"+secretQuery), append(bearer, "X-Api-Key", key, "X-Request-Id", "the-good-one")...)
	if status != http.StatusOK || made["status"] != "completed" {
		t.Fatalf("got %d %v", status, made)
	}
	for _, c := range []struct {
		status                  int
		path, contentType, body string
		headers                 []string
	}{
		{422, "/remove-bg", "application/json", from(pictures.URL + "/moved.png?" + secretQuery), bearer},
		{422, "/remove-bg", "application/json", from(pictures.URL + "/none.png?" + secretQuery), bearer},
		{422, "/remove-bg", "application/json", from(closed.URL + "/cup.png?" + secretQuery), bearer},
		{422, "/remove-bg", "application/json", from("ftp://example.com/cup.png?" + secretQuery), bearer},
		{422, "/remove-bg", "application/json", from("http://exa mple.com/cup.png?" + secretQuery), bearer},
		{400, "/remove-bg", "application/json", `{"image_url":"` + pictures.URL + `/cup.png?` + secretQuery, bearer},
		{401, "/remove-bg", "application/json", from(pictures.URL), []string{"Authorization", "Bearer " + unknown}},
		{401, "/remove-bg", "application/json", from(pictures.URL), []string{"X-Api-Key", unknown + "x"}},
		{401, "/remove-bg?api_key=" + key, "image/png", "", nil},
		{401, "/remove-bg", "image/png", "", append(bearer, "X-Api-Key", unknown)},
		{202, "/upscale", "image/png", string(picture[:len(picture)/2]), bearer}, // only decoding shows that it is cut off
	} {
		if got, answer := ask("POST", c.path, c.contentType, c.body, c.headers...); got != c.status {
			t.Errorf("%s %.80s: %d %v, want %d", c.path, c.body, got, answer, c.status)
		}
	}
	id := made["id"].(string)
	for _, path := range []string{"/jobs/" + id, "/jobs/" + id + "/result", "/me?key=" + key} {
		if status, _ := ask("GET", path, "", "", bearer...); status != http.StatusOK {
			t.Errorf("GET %s: %d", path, status)
		}
	}
	worker.stop(t)
	serve.stop(t)

	logged := serve.log.String() + worker.log.String()
	for _, secret := range []string{key, unknown, strings.TrimPrefix(key, "pictor_"), secretQuery, "c2VjcmV0"} {
		if at := strings.Index(logged, secret); at >= 0 {
			t.Errorf("the log holds a secret: %s", logged[max(0, at-200):min(len(logged), at+100)])
		}
	}
	lines := func(of *process, message string) (found []map[string]any) {
		for line := range strings.Lines(of.log.String()) {
			var fields map[string]any
			_ = json.Unmarshal([]byte(line), &fields) // which is looked at below
			if fields["msg"] == message {
				found = append(found, fields)
			}
		}
		return found
	}
	account := float64(s.account.ID)
	seen := false
	for _, line := range lines(serve, "request") {
		if line["request"] == nil || line["request"] == "" {
			t.Errorf("a request without its id: %v", line)
		}
		if line["status"] != float64(http.StatusUnauthorized) && line["account"] != account {
			t.Errorf("a request without its account: %v", line)
		}
		if line["request"] == "the-good-one" {
			seen = true
			if line["job"] != id {
				t.Errorf("a request without its job: %v", line)
			}
		}
	}
	if !seen {
		t.Error("the request that made a job was not logged")
	}
	done := lines(worker, "done")
	if len(done) == 0 || done[0]["job"] != id || done[0]["request"] != "the-good-one" {
		t.Errorf("the worker logged %v", done)
	}
	for line := range strings.Lines(logged) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("the log is no JSON: %s", line)
		}
		if fields["job"] != nil && (fields["account"] != account || fields["request"] == nil) {
			t.Errorf("a job without its account or its request: %s", line)
		}
	}
	if !strings.Contains(logged, `"level":"DEBUG"`) {
		t.Error("nothing was logged at debug level: this test proves little")
	}
}
