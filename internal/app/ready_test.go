package app_test

import (
	"database/sql"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pictor/internal/app"
	"pictor/internal/bus"
	"pictor/internal/testkit/pgtest"
)

// place is where a process keeps its state, and how each part of it breaks.
type place struct {
	stores app.Stores
	queue  *bus.Server
	blobs  string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	queue, err := bus.StartServer(t.TempDir(), 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(queue.Stop)
	blobs := filepath.Join(t.TempDir(), "blobs")
	return &place{app.Stores{DatabaseURL: pgtest.URL(t), NATSURL: queue.URL(), BlobURL: "file://" + blobs}, queue, blobs}
}

func (p *place) change(t *testing.T, statement string) {
	t.Helper()
	execute(t, p.stores.DatabaseURL, statement)
}

func execute(t *testing.T, database, statement string) {
	t.Helper()
	raw, err := sql.Open("postgres", database)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// close keeps everybody from the database, whose server goes on for others.
func (p *place) close(t *testing.T) {
	t.Helper()
	u, err := url.Parse(p.stores.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	u.Path = "/postgres"
	execute(t, u.String(), "alter database "+name+" allow_connections false")
	execute(t, u.String(), "select pg_terminate_backend(pid) from pg_stat_activity where datname = '"+name+"'")
}

// fill puts a file where the store's folder was: root, whom these tests may
// run as, can write into any folder.
func (p *place) fill(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(p.blobs); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.blobs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func pictures() app.Pictures {
	return app.Pictures{Workers: 1, Engine: "auto", ModelChoice: app.ModelChoice{RemoveBGModel: "remove-bg", Upscale2xModel: "upscale-2x", Upscale4xModel: "upscale-4x"}}
}

// broken names the checks of /readyz that fail, and whether it is ready.
func broken(opsURL string) (names map[string]bool, ready bool) {
	got := ask("", http.MethodGet, opsURL+"/readyz", "", nil)
	names = make(map[string]bool)
	checks, _ := got.body["checks"].(map[string]any)
	for name, said := range checks {
		if said != "ok" {
			names[name] = true
		}
	}
	return names, got.status == http.StatusOK
}

func TestReady_says_which_part_is_broken(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	serve := func(t *testing.T, p *place) string {
		c := app.APIConfig{Edge: app.Edge{Listen: "127.0.0.1:0", ResultsListen: "127.0.0.1:0", Keys: app.Keys{KeyPrefix: "pictor"}},
			Times: app.Times{StuckAfter: 5 * time.Minute, ResultTTL: time.Hour}, Ops: app.Ops{OpsListen: "127.0.0.1:0"}}
		a, err := app.NewAPI(t.Context(), c, p.stores, log)
		if err != nil {
			t.Fatal(err)
		}
		a.Start()
		t.Cleanup(a.Stop)
		return a.OpsURL
	}
	work := func(t *testing.T, p *place) string {
		w, err := app.NewWorker(t.Context(), app.WorkerConfig{Pictures: pictures(), Ops: app.Ops{OpsListen: "127.0.0.1:0"}}, p.stores, log)
		if err != nil {
			t.Fatal(err)
		}
		w.Start()
		t.Cleanup(w.Stop)
		return w.OpsURL
	}
	for _, process := range []struct {
		name  string
		start func(*testing.T, *place) string
	}{{"serve", serve}, {"worker", work}} {
		for _, c := range []struct {
			part string
			do   func(*testing.T, *place)
		}{
			{"database", func(t *testing.T, p *place) { p.close(t) }},
			{"migrations", func(t *testing.T, p *place) { p.change(t, `delete from goose_db_version where version_id = 1`) }},
			{"queue", func(_ *testing.T, p *place) { p.queue.Stop() }},
			{"store", func(t *testing.T, p *place) { p.fill(t) }},
		} {
			t.Run(process.name+" without "+c.part, func(t *testing.T) {
				t.Parallel()
				p := newPlace(t)
				if process.name == "worker" { // which does not make the queue before its first look at it
					serve(t, p)
				}
				url := process.start(t, p)
				until(t, "it is ready", func() bool { _, ready := broken(url); return ready })
				c.do(t, p)
				names, ready := broken(url)
				delete(names, map[string]string{"database": "migrations"}[c.part]) // which are in there
				if ready || !names[c.part] || len(names) != 1 {
					t.Errorf("ready: %t, broken: %v", ready, names)
				}
				// A restart would not help: the process lives, and waits.
				if got := ask("", http.MethodGet, url+"/healthz", "", nil); got.status != http.StatusOK {
					t.Errorf("/healthz: %d", got.status)
				}
			})
		}
	}
}

// A worker that is asked before its models have shown that they work must get
// no jobs, and says why.
func TestWorker_is_not_ready_before_its_self_test(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	w, err := app.NewWorker(t.Context(), app.WorkerConfig{Pictures: pictures(), Ops: app.Ops{OpsListen: "127.0.0.1:0"}}, p.stores, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	names, ready := w.Checked(t.Context())
	if ready || !names["models"] {
		t.Errorf("ready: %t, broken: %v", ready, names)
	}
}

// Before anything broke it is well: also with a NATS in which nothing is yet, as
// after a restore, where the README asks the doctor before anything starts.
func TestDoctor_names_what_is_broken_with_a_hint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		do   func(*testing.T, *place, *app.DoctorConfig)
	}{
		{"database", func(_ *testing.T, p *place, _ *app.DoctorConfig) {
			p.stores.DatabaseURL = "postgres://127.0.0.1:1/none?sslmode=disable"
		}},
		{"schema", func(t *testing.T, p *place, _ *app.DoctorConfig) { p.stores.DatabaseURL = pgtest.Empty(t) }},
		{"books: keys_are_counted", func(t *testing.T, p *place, _ *app.DoctorConfig) {
			p.change(t, `insert into accounts (name, keys) values ('acme', 1)`)
		}},
		{"queue", func(_ *testing.T, p *place, _ *app.DoctorConfig) { p.queue.Stop() }},
		{"store", func(t *testing.T, p *place, _ *app.DoctorConfig) { p.fill(t) }},
		{"engine", func(t *testing.T, _ *place, c *app.DoctorConfig) {
			c.Engine, c.ORTLib = "onnxruntime", filepath.Join(t.TempDir(), "none.so")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			config := app.DoctorConfig{Times: app.Times{StuckAfter: 5 * time.Minute, ResultTTL: time.Hour}, Pictures: pictures()}
			for _, f := range app.Doctor(t.Context(), config, p.stores) {
				if !f.OK || f.Hint != "" {
					t.Errorf("before anything broke: %+v", f)
				}
			}
			c.do(t, p, &config)
			for _, f := range app.Doctor(t.Context(), config, p.stores) {
				if broken := f.Name == c.name; broken == f.OK || broken != (f.Hint != "") || f.Detail == "" {
					t.Errorf("found %+v", f)
				}
			}
		})
	}
}
