package app_test

import (
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"pictor/internal/app"
)

// parse reads a command line into a Config, in an environment of its own.
func parse(t *testing.T, env map[string]string, args ...string) (app.Config, error) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "PICTOR_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
	var c app.Config
	k, err := kong.New(&c, kong.Name("pictor"))
	if err != nil {
		t.Fatal(err)
	}
	if err := app.CheckEnvironment(k); err != nil {
		return c, err
	}
	_, err = k.Parse(args)
	return c, err
}

// The operator's scripts rely on these names and defaults.
func TestConfig_has_the_fixed_names_and_defaults(t *testing.T) {
	t.Parallel()
	table, err := app.Table()
	if err != nil {
		t.Fatal(err)
	}
	standard := make(map[string]string)
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); strings.Contains(line, "PICTOR_") {
			standard[strings.Trim(cells[1], " `")] = strings.Trim(cells[3], " `")
		}
	}
	for name, want := range map[string]string{
		"PICTOR_LISTEN": "127.0.0.1:8080", "PICTOR_RESULTS_LISTEN": "127.0.0.1:8081", "PICTOR_OPS_LISTEN": "127.0.0.1:8082",
		"PICTOR_BASE_URL": "http://LISTEN/api/v1", "PICTOR_RESULTS_URL": "http://RESULTS_LISTEN",
		"PICTOR_DATABASE_URL": "", "PICTOR_NATS_URL": "nats://127.0.0.1:4222", "PICTOR_BLOB_URL": "file:///var/lib/pictor/blobs",
		"PICTOR_KEY_PREFIX": "pictor", "PICTOR_STUCK_AFTER": "5m", "PICTOR_RESULT_TTL": "24h", "PICTOR_IMAGE_URL_ALLOW": "",
		"PICTOR_WORKERS": "one per core", "PICTOR_ENGINE": "auto", "PICTOR_ORT_LIB": "", "PICTOR_MODELS_DIR": "",
		"PICTOR_REMOVE_BG_MODEL": "remove-bg", "PICTOR_UPSCALE_2X_MODEL": "upscale-2x", "PICTOR_UPSCALE_4X_MODEL": "upscale-4x",
	} {
		got, ok := standard[name]
		if !ok {
			t.Errorf("%s is missing", name)
		}
		if got != want {
			t.Errorf("%s is %q by default, want %q", name, got, want)
		}
	}
}

func TestConfig_of_nothing_has_no_mistake_but_the_missing_database(t *testing.T) {
	c, err := parse(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, part := range map[string]interface{ Mistakes() error }{"edge": c.Edge, "times": c.Times, "pictures": c.Pictures, "ops": c.Ops} {
		if err := part.Mistakes(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.Stores.Mistakes(); err == nil || !strings.Contains(err.Error(), "PICTOR_DATABASE_URL") {
		t.Errorf("without a database: %v", err)
	}
}

func TestConfig_reads_flags_before_the_environment(t *testing.T) {
	c, err := parse(t, map[string]string{
		"PICTOR_LISTEN":          "0.0.0.0:80",
		"PICTOR_STUCK_AFTER":     "30s",
		"PICTOR_IMAGE_URL_ALLOW": "10.0.0.0/8,fd00::/8",
		"PICTOR_WORKERS":         "", // set to nothing is not set
	}, "--listen", "127.0.0.1:9000")
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:9000" || c.StuckAfter != 30*time.Second || c.Workers != 0 {
		t.Errorf("got %q, %s, %d", c.Listen, c.StuckAfter, c.Workers)
	}
	want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	if diff := cmp.Diff(want, c.ImageURLAllow, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

// An operator who mends one mistake at a time restarts a service once per
// mistake.
func TestConfig_names_every_mistake_at_once(t *testing.T) {
	_, err := parse(t, map[string]string{
		"PICTOR_STUCK_AFTER": "soon", "PICTOR_WORKERS": "many", "PICTOR_IMAGE_URL_ALLOW": "10.0.0.1",
		"PICTOR_RESULT_TTL": "1s", "PICTOR_LISTEN": "nowhere", "PICTOR_DATABASE_URL": "mysql://a", // these can be read
	})
	for _, name := range []string{"PICTOR_STUCK_AFTER", "PICTOR_WORKERS", "PICTOR_IMAGE_URL_ALLOW", "PICTOR_RESULT_TTL", "PICTOR_LISTEN", "PICTOR_DATABASE_URL"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named in: %v", name, err)
		}
	}
}

func TestConfig_refuses(t *testing.T) {
	for name, row := range map[string]struct {
		env  map[string]string
		part func(app.Config) error
		want []string
	}{
		"an edge": {
			map[string]string{"PICTOR_LISTEN": "8080", "PICTOR_RESULTS_LISTEN": "x:y:z", "PICTOR_BASE_URL": "http://a/b", "PICTOR_RESULTS_URL": "ftp://a", "PICTOR_KEY_PREFIX": "a b"},
			func(c app.Config) error { return c.Edge.Mistakes() },
			[]string{"PICTOR_LISTEN", "PICTOR_RESULTS_LISTEN", "PICTOR_BASE_URL", "PICTOR_RESULTS_URL", "PICTOR_KEY_PREFIX"},
		},
		"stores": {
			map[string]string{"PICTOR_DATABASE_URL": "mysql://a", "PICTOR_NATS_URL": "http://a", "PICTOR_BLOB_URL": "/var/lib"},
			func(c app.Config) error { return c.Stores.Mistakes() },
			[]string{"PICTOR_DATABASE_URL", "PICTOR_NATS_URL", "PICTOR_BLOB_URL"},
		},
		"files for NATS": {
			map[string]string{"PICTOR_NATS_CREDS": "/missing/creds", "PICTOR_NATS_CA": "/missing/ca", "PICTOR_NATS_CERT": "/missing/cert"},
			func(c app.Config) error { return c.Stores.Mistakes() },
			[]string{"PICTOR_NATS_CREDS", "PICTOR_NATS_CA", "PICTOR_NATS_CERT", "PICTOR_NATS_KEY"},
		},
		"files for Postgres": {
			map[string]string{"PICTOR_DATABASE_URL": "postgres://h/x?sslmode=require&sslrootcert=/missing/ca&sslcert=/missing/cert&sslkey=/missing/key"},
			func(c app.Config) error { return c.Stores.Mistakes() },
			[]string{"PICTOR_DATABASE_URL: sslrootcert: open /missing/ca", "PICTOR_DATABASE_URL: sslcert", "PICTOR_DATABASE_URL: sslkey"},
		},
		"times": {
			map[string]string{"PICTOR_STUCK_AFTER": "1s", "PICTOR_RESULT_TTL": "-1h"},
			func(c app.Config) error { return c.Times.Mistakes() },
			[]string{"PICTOR_STUCK_AFTER", "PICTOR_RESULT_TTL"},
		},
		"a job that is given up while a worker may still have it": {
			map[string]string{"PICTOR_STUCK_AFTER": app.Lease.String(), "PICTOR_RESULT_TTL": "59s"},
			func(c app.Config) error { return c.Times.Mistakes() },
			[]string{"PICTOR_STUCK_AFTER is " + app.Lease.String() + ": want more than", "PICTOR_RESULT_TTL is 59s: want at least 1m0s"},
		},
		"two listeners on one address": {
			map[string]string{"PICTOR_LISTEN": "127.0.0.1:80", "PICTOR_RESULTS_LISTEN": "127.0.0.1:80"},
			func(c app.Config) error { return c.Edge.Mistakes() },
			[]string{"PICTOR_LISTEN and PICTOR_RESULTS_LISTEN are both 127.0.0.1:80"},
		},
		"a bucket without a name": {
			map[string]string{"PICTOR_BLOB_URL": "s3://?region=eu-west-1", "PICTOR_DATABASE_URL": "postgres://h/x"},
			func(c app.Config) error { return c.Stores.Mistakes() },
			[]string{"PICTOR_BLOB_URL", "want s3://bucket"},
		},
		"pictures": {
			map[string]string{"PICTOR_WORKERS": "-1", "PICTOR_ENGINE": "tensorflow", "PICTOR_TASKS": "remove-bg,paint", "PICTOR_REMOVE_BG_MODEL": "upscale-2x", "PICTOR_UPSCALE_4X_MODEL": "x"},
			func(c app.Config) error { return c.Pictures.Mistakes() },
			[]string{"PICTOR_WORKERS", "PICTOR_ENGINE", "PICTOR_TASKS", "PICTOR_REMOVE_BG_MODEL"},
		},
		"traces": {
			map[string]string{
				"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_HEADERS": "authorization Bearer hush",
				"OTEL_EXPORTER_OTLP_TIMEOUT": "10s", "OTEL_EXPORTER_OTLP_CERTIFICATE": "/missing/ca", "OTEL_TRACES_SAMPLER": "sometimes",
			},
			func(c app.Config) error { return c.Ops.Mistakes() },
			[]string{
				"OTEL_EXPORTER_OTLP_ENDPOINT is no http", `OTEL_EXPORTER_OTLP_PROTOCOL is "grpc": want http/protobuf`, "OTEL_EXPORTER_OTLP_HEADERS",
				"OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_CERTIFICATE", "OTEL_TRACES_SAMPLER",
			},
		},
		"traces by the variables of their own": {
			map[string]string{
				"OTEL_TRACES_EXPORTER": "jaeger", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "ftp://collector", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json",
				"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "5",
			},
			func(c app.Config) error { return c.Ops.Mistakes() },
			[]string{"OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_TRACES_SAMPLER_ARG"},
		},
		"ops": {
			map[string]string{"PICTOR_OPS_LISTEN": "nowhere"},
			func(c app.Config) error { return c.Ops.Mistakes() },
			[]string{"PICTOR_OPS_LISTEN"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := parse(t, row.env)
			if err != nil {
				t.Fatal(err)
			}
			err = row.part(c)
			for _, want := range row.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s is not named in: %v", want, err)
				}
			}
			if err != nil && strings.Contains(err.Error(), "hush") {
				t.Errorf("a secret is told: %v", err)
			}
		})
	}
}

// A worker must beat several times before its lease is over, and a job must not
// be given up before that.
func TestTimes_follow_each_other(t *testing.T) {
	c, err := parse(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if 3*app.Beat > app.Lease || app.Lease >= c.StuckAfter || c.StuckAfter >= c.ResultTTL {
		t.Errorf("beat %s, lease %s, stuck after %s, results for %s", app.Beat, app.Lease, c.StuckAfter, c.ResultTTL)
	}
}

// A password in a URL must not end in a log.
func TestConfig_keeps_passwords_out_of_its_mistakes(t *testing.T) {
	c, err := parse(t, map[string]string{"PICTOR_DATABASE_URL": "postgres://u:secret@h:port/x"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Stores.Mistakes(); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

// Variables of OpenTelemetry may be there for other programs.
func TestConfig_does_not_care_for_traces_that_nobody_wants(t *testing.T) {
	for _, env := range []map[string]string{
		{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_TRACES_EXPORTER": "none"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": ""},
	} {
		c, err := parse(t, env)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Ops.Mistakes(); err != nil {
			t.Errorf("%v: %v", env, err)
		}
	}
}

func TestConfig_gives_every_setting_a_variable(t *testing.T) {
	t.Parallel()
	k, err := kong.New(&app.Config{}, kong.Name("pictor"), kong.NoDefaultHelp())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range k.Model.Flags {
		want := []string{"PICTOR_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))}
		if !reflect.DeepEqual(want, f.Envs) {
			t.Errorf("--%s is read from %v, want %v", f.Name, f.Envs, want)
		}
		if f.Help == "" {
			t.Errorf("--%s has no help", f.Name)
		}
	}
}

func TestReadme_has_the_tables_of_the_configuration_and_the_metrics(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := app.InsertTables(string(b))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Errorf("run `go generate ./internal/app`: %s", diff)
	}
}
