package lint_test

import (
	"slices"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

func compose(t *testing.T, environment map[string]string) (*types.Project, error) {
	t.Helper()
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  "..",
		ConfigFiles: []types.ConfigFile{{Filename: "../compose.yaml", Content: []byte(read(t, "../compose.yaml"))}},
		Environment: environment,
	})
}

func TestCompose(t *testing.T) {
	t.Parallel()
	p, err := compose(t, map[string]string{"POSTGRES_PASSWORD": "secret"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"migrate", "serve", "worker"} {
		s, err := p.GetService(name)
		if err != nil {
			t.Fatal(err)
		}
		if !s.ReadOnly || s.Privileged || !slices.Contains(s.CapDrop, "ALL") || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s holds privileges that it does not need", name)
		}
		if url := s.Environment["PICTOR_DATABASE_URL"]; url == nil || *url != "postgres://pictor:secret@postgres/pictor?sslmode=disable" {
			t.Errorf("%s has no database", name)
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s lets everybody in at %s, without TLS", name, port.Published)
			}
		}
		if name != "migrate" && (s.HealthCheck == nil || s.DependsOn["migrate"].Condition != types.ServiceConditionCompletedSuccessfully) {
			t.Errorf("%s starts before the schema is there, or nobody sees whether it is ready", name)
		}
	}
	if _, err := compose(t, nil); err == nil {
		t.Error("it starts without a password for the database")
	}
}
