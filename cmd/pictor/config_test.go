package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/app"
)

// configuration is the document of `pictor config`.
type configuration struct {
	Settings          []app.Setting
	Mistakes, Unknown []string
}

func (c configuration) of(name string) app.Setting {
	i := slices.IndexFunc(c.Settings, func(s app.Setting) bool { return s.Name == name })
	if i < 0 {
		return app.Setting{}
	}
	return c.Settings[i]
}

// config runs `pictor config --json` as a process, in an environment of its own.
func config(t *testing.T, code int, env []string, args ...string) (configuration, string) {
	t.Helper()
	p := prepare(t, t.TempDir(), append([]string{"config", "--json"}, args...)...)
	p.cmd.Env = append(p.cmd.Env, env...)
	p.run()
	if got := p.wait(); got != code {
		t.Errorf("it ended with %d, want %d: %s", got, code, p.stderr.bytes())
	}
	said := string(p.stdout.bytes()) + string(p.stderr.bytes())
	return document[configuration](t, string(p.stdout.bytes())), said
}

func TestConfig_shows_every_setting_and_where_it_comes_from(t *testing.T) {
	t.Parallel()
	c, _ := config(t, 0, []string{"PICTOR_DATABASE_URL=postgres://db/x", "PICTOR_LISTEN=0.0.0.0:80", "PICTOR_WORKERS=7", "PICTOR_ENGINE="},
		"--workers", "3", "--image-url-allow", "10.0.0.0/8,fd00::/8", "--log-level", "warn")
	table, err := app.Table()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); strings.Contains(line, "PICTOR_") && c.of(strings.Trim(cells[1], " `")).Name == "" {
			t.Errorf("%s is not shown", cells[1])
		}
	}
	for _, want := range []app.Setting{
		{Name: "PICTOR_DATABASE_URL", Value: "postgres://db/x", From: "environment"},
		{Name: "PICTOR_NATS_URL", Value: "nats://127.0.0.1:4222", From: "default"},
		{Name: "PICTOR_LISTEN", Value: "0.0.0.0:80", From: "environment"},
		{Name: "PICTOR_RESULTS_LISTEN", Value: "127.0.0.1:8081", From: "default"},
		{Name: "PICTOR_BASE_URL", Value: "http://0.0.0.0:80/api/v1", From: "default"},
		{Name: "PICTOR_WORKERS", Value: "3", From: "flag"},
		{Name: "PICTOR_ENGINE", Value: "auto", From: "default"},
		{Name: "PICTOR_IMAGE_URL_ALLOW", Value: "10.0.0.0/8,fd00::/8", From: "flag"},
		{Name: "PICTOR_STUCK_AFTER", Value: "5m0s", From: "default"},
		{Name: "PICTOR_LOG_LEVEL", Value: "warn", From: "flag"},
	} {
		if diff := cmp.Diff(want, c.of(want.Name)); diff != "" {
			t.Error(diff)
		}
	}
	if len(c.Mistakes)+len(c.Unknown) != 0 {
		t.Errorf("mistakes %v, unknown %v", c.Mistakes, c.Unknown)
	}
}

func TestConfig_keeps_secrets_to_itself(t *testing.T) {
	t.Parallel()
	c, said := config(t, 0, []string{
		"PICTOR_DATABASE_URL=postgres://user:hush-1@db/x?sslmode=require&sslpassword=hush-2",
		"PICTOR_NATS_URL=nats://hush-3@a:4222,tls://user:hush-4@b:4222",
		"PICTOR_API_KEY=pictor_hush-5",
	})
	if strings.Contains(said, "hush") {
		t.Errorf("it told a secret: %s", said)
	}
	for name, want := range map[string]string{
		"PICTOR_DATABASE_URL": "postgres://user:xxxxx@db/x?sslmode=require&sslpassword=xxxxx",
		"PICTOR_NATS_URL":     "nats://xxxxx@a:4222,tls://user:xxxxx@b:4222",
		"PICTOR_API_KEY":      "(set)",
	} {
		if diff := cmp.Diff(want, c.of(name).Value); diff != "" {
			t.Error(diff)
		}
	}
}

// An operator who mends one mistake at a time restarts a service once per
// mistake.
func TestConfig_names_every_mistake_and_variables_that_are_no_settings(t *testing.T) {
	t.Parallel()
	c, said := config(t, 2, []string{
		"PICTOR_DATABASE_URL=mysql://db/x", "PICTOR_NATS_URL=http://a", "PICTOR_BLOB_URL=ftp://a", "PICTOR_STUCK_AFTER=1s",
		"PICTOR_RESULTS_REDIRECT=true", "PICTOR_ENGINE=none", "PICTOR_KEY_PREFIX=-", "PICTOR_STUK_AFTER=1h",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
	})
	for _, name := range []string{"PICTOR_DATABASE_URL", "PICTOR_NATS_URL", "PICTOR_BLOB_URL", "PICTOR_STUCK_AFTER", "PICTOR_RESULTS_REDIRECT", "PICTOR_ENGINE", "PICTOR_KEY_PREFIX", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if !slices.ContainsFunc(c.Mistakes, func(m string) bool { return strings.Contains(m, name) }) {
			t.Errorf("%s is not named in: %s", name, said)
		}
	}
	if diff := cmp.Diff([]string{"PICTOR_STUK_AFTER"}, c.Unknown); diff != "" {
		t.Error(diff)
	}
}

func TestConfig_of_a_dev_stack_says_so(t *testing.T) {
	t.Parallel()
	data := t.TempDir() + "/data"
	_, info := dev(t, data, "--no-worker")
	c, _ := config(t, 0, nil, "--data", data)
	if diff := cmp.Diff(app.Setting{Name: "PICTOR_NATS_URL", Value: info.NATSURL, From: "dev stack"}, c.of("PICTOR_NATS_URL")); diff != "" {
		t.Error(diff)
	}
	if got := c.of("PICTOR_BLOB_URL"); got.Value != "file://"+data+"/blobs" || got.From != "dev stack" {
		t.Errorf("the store is %v", got)
	}
}

func TestServe_refuses_what_does_not_fit_the_store(t *testing.T) {
	t.Parallel()
	code, _, stderr := ask(t, t.TempDir(), "serve", "--results-redirect", "--database-url", "postgres://nowhere.invalid/x", "--blob-url", "file:///tmp/x", "--stuck-after", "1s")
	if code != 2 || !containsAll(stderr, "PICTOR_RESULTS_REDIRECT", "PICTOR_STUCK_AFTER") {
		t.Errorf("ended with %d: %s", code, stderr)
	}
}
