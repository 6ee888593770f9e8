package app_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	_ "github.com/lib/pq"

	"pictor/internal/app"
	"pictor/internal/testkit/pgtest"
)

// told is what /metrics says: the value of each series.
func told(t *testing.T, opsURL string) map[string]float64 {
	t.Helper()
	response, err := http.Get(opsURL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("/metrics: %s", response.Status)
	}
	values := make(map[string]float64)
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		series, value, ok := cutLast(lines.Text())
		if !ok || strings.HasPrefix(series, "#") {
			continue
		}
		if values[series], err = strconv.ParseFloat(value, 64); err != nil {
			t.Errorf("%s: %v", series, err)
		}
	}
	return values
}

func cutLast(line string) (before, after string, ok bool) {
	i := strings.LastIndexByte(line, ' ')
	if i < 0 {
		return "", "", false
	}
	return line[:i], line[i+1:], true
}

func TestMetrics_of_the_API(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	books := pgtest.Open(t, url)
	bob := pgtest.NewAccount(t, books, 5000)
	j := pgtest.Queued(t, books, bob.ID)
	if _, err := books.Enqueued(t.Context(), j.ID); err != nil {
		t.Fatal(err)
	}
	// Somebody repaired a balance by hand.
	raw, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.ExecContext(t.Context(), `update accounts set balance = balance + 7 where id = $1`, bob.ID); err != nil {
		t.Fatal(err)
	}

	a, queue, key := serveOn(t, url)
	defer a.Stop()
	picture, err := os.ReadFile("../../testdata/images/cup.png")
	if err != nil {
		t.Fatal(err)
	}
	created := ask(key, http.MethodPost, a.BaseURL+"/remove-bg", "image/png", picture)
	job := fmt.Sprint(a.BaseURL, "/jobs/", created.body["id"])
	ask(key, http.MethodGet, job, "", nil)
	ask(key, http.MethodGet, job+"/result", "", nil)
	ask(key, http.MethodGet, a.BaseURL+"/no/such/"+strings.Repeat("path", 9), "", nil)
	ask(key, "INVENT", a.BaseURL+"/me", "", nil)
	ask("", http.MethodGet, a.ResultsURL+"/r/4u1Yxw7WbbTzqkmOnoJ2Cg.png", "", nil)
	held := make(chan answer, 1)
	go func() { held <- ask(key, http.MethodGet, job+"?wait=60", "", nil) }()
	until(t, "somebody waits", func() bool { return told(t, a.OpsURL)["pictor_waiting_requests"] == 1 })
	queue.Stop()
	refused := ask(key, http.MethodPost, a.BaseURL+"/remove-bg", "image/png", picture)
	if created.status != http.StatusAccepted || refused.status != http.StatusBadGateway {
		t.Fatalf("got %v and %v", created, refused)
	}
	until(t, "the books are read", func() bool {
		_, jobs := told(t, a.OpsURL)[`pictor_jobs{state="queued",task="remove-bg"}`]
		_, points := told(t, a.OpsURL)[`pictor_ledger_points{kind="credit"}`]
		return jobs && points
	})

	values := told(t, a.OpsURL)
	for series, want := range map[string]float64{
		`pictor_http_requests_total{host="api",method="POST",route="/remove-bg",status="202"}`:       1,
		`pictor_http_requests_total{host="api",method="POST",route="/remove-bg",status="502"}`:       1,
		`pictor_http_requests_total{host="api",method="GET",route="/jobs/{id}",status="200"}`:        1,
		`pictor_http_requests_total{host="api",method="GET",route="/jobs/{id}/result",status="409"}`: 1,
		`pictor_http_requests_total{host="api",method="GET",route="other",status="404"}`:             1,
		`pictor_http_requests_total{host="api",method="other",route="other",status="405"}`:           1,
		`pictor_http_requests_total{host="results",method="GET",route="/r/{token}",status="404"}`:    1,
		`pictor_http_request_seconds_count{host="api",route="/remove-bg"}`:                           2,
		`pictor_refunds_total{reason="unqueued"}`:                                                    1,
		`pictor_refunds_total{reason="stuck"}`:                                                       0,
		`pictor_jobs{state="processing",task="upscale-4x"}`:                                          0,
		`pictor_ledger_points{kind="credit"}`:                                                        15,
		`pictor_invariant_violations`:                                                                1,
	} {
		if got, ok := values[series]; !ok || got != want {
			t.Errorf("%s is %v (%t), want %v", series, got, ok, want)
		}
	}
	if values[`pictor_jobs{state="queued",task="remove-bg"}`] < 1 {
		t.Error("the queued job is not counted")
	}
	checkDocumented(t, values)
	a.Stop()
	<-held
}

// checkDocumented holds that the README's table lists whatever is told.
func checkDocumented(t *testing.T, values map[string]float64) {
	t.Helper()
	table := app.MetricsTable()
	for series := range values {
		name, _, _ := strings.Cut(series, "{")
		if !strings.HasPrefix(name, "pictor_") {
			continue
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, suffix)
		}
		if !strings.Contains(table, "| `"+name+"`") && !strings.Contains(table, "| `"+name+"{") {
			t.Errorf("%s is not in the README", name)
		}
	}
}

// A request that waits leaves net/http and comes back: it is one request all the
// same, which took all that time.
func TestMetrics_of_a_request_that_waits(t *testing.T) {
	t.Parallel()
	a, _, key := serve(t)
	defer a.Stop()
	picture, err := os.ReadFile("../../testdata/images/cup.png")
	if err != nil {
		t.Fatal(err)
	}
	created := ask(key, http.MethodPost, a.BaseURL+"/remove-bg?wait=1", "image/png", picture)
	if created.status != http.StatusAccepted {
		t.Fatal(created)
	}
	const requests = `pictor_http_requests_total{host="api",method="POST",route="/remove-bg",status="202"}`
	until(t, "the request is counted", func() bool { return told(t, a.OpsURL)[requests] == 1 })
	values := told(t, a.OpsURL)
	const time = `pictor_http_request_seconds_%s{host="api",route="/remove-bg"}`
	if count, sum := values[fmt.Sprintf(time, "count")], values[fmt.Sprintf(time, "sum")]; count != 1 || sum < 1 {
		t.Errorf("%v requests took %v s, want 1 that took a second or more", count, sum)
	}

	leaving, leave := context.WithCancel(t.Context())
	q, err := http.NewRequestWithContext(leaving, http.MethodGet, fmt.Sprint(a.BaseURL, "/jobs/", created.body["id"], "?wait=60"), nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("X-Api-Key", key)
	left := make(chan error, 1)
	go func() {
		response, err := http.DefaultClient.Do(q)
		if err == nil {
			_ = response.Body.Close()
		}
		left <- err
	}()
	until(t, "the client waits", func() bool { return a.Waiting() == 1 })
	leave()
	if err := <-left; err == nil {
		t.Error("who left has an answer")
	}
	until(t, "it is counted as cut", func() bool {
		return told(t, a.OpsURL)[`pictor_http_requests_total{host="api",method="GET",route="/jobs/{id}",status="cut"}`] == 1
	})
}
