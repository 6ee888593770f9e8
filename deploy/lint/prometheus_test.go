package lint_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

func checkExpression(t *testing.T, where, expr string) {
	t.Helper()
	// Grafana puts a span in here.
	expr = strings.ReplaceAll(expr, "$__rate_interval", "5m")
	if _, err := parser.NewParser(parser.Options{}).ParseExpr(expr); err != nil {
		t.Errorf("%s: %s: %v", where, expr, err)
	}
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	var file struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert       string            `json:"alert"`
				Expr        string            `json:"expr"`
				For         string            `json:"for"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, "../prometheus/alerts.yml")), &file); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || seen[r.Alert] {
				t.Errorf("a rule is called %q, like another or like none", r.Alert)
			}
			seen[r.Alert] = true
			checkExpression(t, r.Alert, r.Expr)
			if r.For != "" {
				if _, err := time.ParseDuration(r.For); err != nil {
					t.Errorf("%s: %v", r.Alert, err)
				}
			}
			if s := r.Labels["severity"]; s != "page" && s != "ticket" {
				t.Errorf("%s has the severity %q", r.Alert, s)
			}
			if r.Annotations["summary"] == "" {
				t.Errorf("%s does not say what is the matter", r.Alert)
			}
		}
	}
	if len(seen) == 0 {
		t.Error("there are no alerts")
	}
}

func TestDashboard(t *testing.T) {
	t.Parallel()
	type target struct {
		Expr         string `json:"expr"`
		RefID        string `json:"refId"`
		LegendFormat string `json:"legendFormat"`
	}
	var file struct {
		UID    string `json:"uid"`
		Title  string `json:"title"`
		Panels []struct {
			ID      int                      `json:"id"`
			Type    string                   `json:"type"`
			Title   string                   `json:"title"`
			GridPos struct{ H, W, X, Y int } `json:"gridPos"`
			Targets []target                 `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal([]byte(read(t, "../grafana/pictor.json")), &file); err != nil {
		t.Fatal(err)
	}
	ids := make(map[int]bool)
	for _, p := range file.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.W == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q has the id of another, or no title or place", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, of := range p.Targets {
			checkExpression(t, p.Title, of.Expr)
		}
	}
	if file.UID == "" || len(ids) < 20 {
		t.Errorf("the dashboard %q has %d panels", file.UID, len(ids))
	}
}
