package app_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"pictor/internal/app"
	"pictor/internal/bus"
	"pictor/internal/testkit/pgtest"
)

const patience = time.Minute

// serve starts the API on a database and a queue of its own, with a key.
func serve(t *testing.T) (a *app.API, queue *bus.Server, key string) {
	t.Helper()
	return serveOn(t, pgtest.URL(t))
}

// serveOn does so on a database that may hold something already.
func serveOn(t *testing.T, databaseURL string) (a *app.API, queue *bus.Server, key string) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	queue, err := bus.StartServer(t.TempDir(), 0, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(queue.Stop)
	stores := app.Stores{DatabaseURL: databaseURL, NATSURL: queue.URL(), BlobURL: "file://" + t.TempDir()}
	admin, err := app.OpenAdmin(t.Context(), app.Connection{Stores: stores}, log)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.DB.CreateAccount(t.Context(), "alice", 10_000, false); err != nil {
		t.Fatal(err)
	}
	made, err := admin.CreateKey(t.Context(), "alice", app.Keys{KeyPrefix: "pictor"}, "")
	if err != nil {
		t.Fatal(err)
	}
	c := app.APIConfig{
		Edge:  app.Edge{Listen: "127.0.0.1:0", ResultsListen: "127.0.0.1:0", Keys: app.Keys{KeyPrefix: "pictor"}},
		Times: app.Times{StuckAfter: 5 * time.Minute, ResultTTL: time.Hour},
		Ops:   app.Ops{OpsListen: "127.0.0.1:0"},
	}
	if a, err = app.NewAPI(t.Context(), c, stores, log); err != nil {
		t.Fatal(err)
	}
	a.Start()
	return a, queue, string(made.Secret)
}

type answer struct {
	status int
	body   map[string]any
	err    error
}

func ask(key, method, url, contentType string, body []byte) answer {
	req, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", contentType)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	got := answer{status: resp.StatusCode}
	got.err = json.NewDecoder(resp.Body).Decode(&got.body)
	return got
}

// In a container a server listens at every address, and a result_url of
// http://0.0.0.0:8081 is of use to nobody.
func TestAPI_warns_of_links_that_lead_nowhere(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for want, edge := range map[string]app.Edge{
		"PICTOR_BASE_URL":    {Listen: "0.0.0.0:0", ResultsListen: "0.0.0.0:0", Links: app.Links{ResultsURL: "https://results.example"}},
		"PICTOR_RESULTS_URL": {Listen: "127.0.0.1:0", ResultsListen: "[::]:0"},
		"":                   {Listen: "127.0.0.1:0", ResultsListen: "127.0.0.1:0"},
	} {
		edge.Keys = app.Keys{KeyPrefix: "pictor"}
		var said bytes.Buffer
		a, err := app.NewAPI(t.Context(), app.APIConfig{Edge: edge, Ops: app.Ops{OpsListen: "127.0.0.1:0"}, Times: app.Times{StuckAfter: time.Minute, ResultTTL: time.Hour}},
			p.stores, slog.New(slog.NewTextHandler(&said, nil)))
		if err != nil {
			t.Fatal(err)
		}
		a.Start()
		a.Stop()
		for _, name := range []string{"PICTOR_BASE_URL", "PICTOR_RESULTS_URL"} {
			if told := strings.Contains(said.String(), "set "+name); told != (name == want) {
				t.Errorf("with %+v it said %s", edge, said.String())
			}
		}
	}
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	over := time.After(patience)
	for !done() {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("in vain waited until %s", what)
		}
	}
}

// A stop must not cut off who waits: the answer is the job as it is.
func TestAPI_answers_who_waits_when_it_stops(t *testing.T) {
	t.Parallel()
	a, _, key := serve(t)
	picture, err := os.ReadFile("../../testdata/images/cup.png")
	if err != nil {
		t.Fatal(err)
	}
	created := ask(key, http.MethodPost, a.BaseURL+"/remove-bg", "image/png", picture)
	if created.status != http.StatusAccepted {
		t.Fatal(created)
	}
	held := make(chan answer, 1)
	go func() {
		held <- ask(key, http.MethodGet, fmt.Sprint(a.BaseURL, "/jobs/", created.body["id"], "?wait=60"), "", nil)
	}()
	until(t, "somebody waits", func() bool { return a.Waiting() == 1 })
	a.Stop()
	if got := <-held; got.err != nil || got.status != http.StatusOK || got.body["status"] != "queued" {
		t.Errorf("who waited got %v", got)
	}
	if got := ask(key, http.MethodGet, a.BaseURL+"/me", "", nil); got.err == nil {
		t.Errorf("it still answers: %v", got)
	}
}

func TestAPI_is_not_ready_without_its_queue(t *testing.T) {
	t.Parallel()
	a, queue, _ := serve(t)
	defer a.Stop()
	if got := ask("", http.MethodGet, a.OpsURL+"/readyz", "", nil); got.status != http.StatusOK {
		t.Errorf("at first: %v", got)
	}
	queue.Stop()
	got := ask("", http.MethodGet, a.OpsURL+"/readyz", "", nil)
	checks, _ := got.body["checks"].(map[string]any)
	if got.status != http.StatusServiceUnavailable || checks["queue"] == "ok" || checks["database"] != "ok" {
		t.Errorf("without a queue: %v", got)
	}
	if got := ask("", http.MethodGet, a.OpsURL+"/healthz", "", nil); got.status != http.StatusOK {
		t.Errorf("it lives: %v", got)
	}
}
