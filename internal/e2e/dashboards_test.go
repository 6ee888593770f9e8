package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-faster/yaml"

	api "pictor/gen"
	"pictor/internal/point"
	"pictor/internal/testkit/parts"
	"pictor/internal/testkit/pgtest"
)

var (
	metricName = regexp.MustCompile(`\b(?:pictor|process|go)_[a-z0-9_]+\b`)
	selector   = regexp.MustCompile(`\b((?:pictor|process|go)_[a-z0-9_]+)\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	grouping   = regexp.MustCompile(`\bby\s*\(([^)]*)\)`)
	label      = regexp.MustCompile(`([a-z_]+)="`)
	legend     = regexp.MustCompile(`\{\{\s*(?:\$labels\.)?([a-z_]+)\s*\}\}`)
)

// series are what a process tells: the labels of each metric's name.
type series map[string][]string

func (s series) scrape(t *testing.T, opsURL string) {
	t.Helper()
	response, err := http.Get(opsURL + "/metrics")
	must(t, err)
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		name, labels, _ := strings.Cut(lines.Text(), "{")
		name, _, _ = strings.Cut(name, " ")
		if s[name] == nil {
			s[name] = []string{"instance", "job"} // Prometheus's own
		}
		for _, m := range label.FindAllStringSubmatch(labels, -1) {
			if !slices.Contains(s[name], m[1]) {
				s[name] = append(s[name], m[1])
			}
		}
	}
}

// expressions are the queries of the dashboards and the rules, with the texts
// that name their labels.
func expressions(t *testing.T) (found []query) {
	t.Helper()
	read := func(path string, decode func([]byte, any) error) any {
		b, err := os.ReadFile(path)
		must(t, err)
		var v any
		if err := decode(b, &v); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return v
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			if expr, ok := v["expr"].(string); ok {
				q := query{expr: expr}
				if text, ok := v["legendFormat"].(string); ok {
					q.text = text
				}
				if notes, ok := v["annotations"].(map[string]any); ok {
					for _, n := range notes {
						q.text += n.(string)
					}
				}
				found = append(found, q)
			}
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(read("../../deploy/grafana/pictor.json", json.Unmarshal))
	walk(read("../../deploy/prometheus/alerts.yml", yaml.Unmarshal))
	return found
}

type query struct{ expr, text string }

// Every series and label that the dashboard and the alert rules name is told by
// the real processes after one picture of each task.
func TestDashboards_name_what_is_told(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.account = pgtest.NewAccount(t, s.db, 10*point.Point)
	serve, worker := s.run(t, "serve"), s.run(t, "worker")
	client, picture := s.clientOf(t, serve.baseURL), parts.Picture(t, "cup.png")
	_, err := client.RemoveBackground(t.Context(), &api.RemoveBackgroundReqImagePNG{Data: bytes.NewReader(picture)}, api.RemoveBackgroundParams{Wait: api.NewOptWait(60)})
	must(t, err)
	for _, scale := range []api.Scale{api.Scale2, api.Scale4} {
		_, err := client.Upscale(t.Context(), &api.UpscaleReqImagePNG{Data: bytes.NewReader(picture)}, api.UpscaleParams{Wait: api.NewOptWait(60), Scale: api.NewOptScale(scale)})
		must(t, err)
	}
	told := make(series)
	until(t, "the books were read", func() bool {
		told.scrape(t, serve.opsURL)
		told.scrape(t, worker.opsURL)
		return told["pictor_blob_bytes"] != nil && told["pictor_picture_seconds_count"] != nil
	})
	queries := expressions(t)
	if len(queries) < 30 {
		t.Fatalf("only %d queries were found", len(queries))
	}
	for _, q := range queries {
		names := metricName.FindAllString(q.expr, -1)
		if len(names) == 0 {
			t.Errorf("%s names no series", q.expr)
			continue
		}
		for _, name := range names {
			if told[name] == nil {
				t.Errorf("%s: no process tells %s", q.expr, name)
			}
		}
		for _, m := range selector.FindAllStringSubmatch(q.expr, -1) {
			for _, label := range matcher.FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(told[m[1]], label[1]) {
					t.Errorf("%s: %s has no label %s", q.expr, m[1], label[1])
				}
			}
		}
		grouped := grouping.FindAllStringSubmatch(q.expr, -1)
		for _, by := range grouped {
			for label := range strings.SplitSeq(by[1], ",") {
				if label = strings.TrimSpace(label); !slices.Contains(told[names[0]], label) {
					t.Errorf("%s: %s has no label %s", q.expr, names[0], label)
				}
			}
		}
		for _, label := range legend.FindAllStringSubmatch(q.text, -1) {
			if len(grouped) == 0 && !slices.Contains(told[names[0]], label[1]) || len(grouped) > 0 && !strings.Contains(grouped[0][1], label[1]) {
				t.Errorf("%s: its text names %s, which it does not give", q.expr, label[1])
			}
		}
	}
}
