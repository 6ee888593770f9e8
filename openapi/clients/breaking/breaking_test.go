// Package breaking holds openapi.json against the documents that were released.
package breaking

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/oasdiff/oasdiff/checker"
	"github.com/oasdiff/oasdiff/diff"
	"github.com/oasdiff/oasdiff/load"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// breaks lists what a client of the document before cannot rely on any more in
// the document after. A warning counts: an enum that grows in an answer is one,
// and it breaks clients that were generated from the shorter one.
func breaks(t *testing.T, before, after []byte) []string {
	t.Helper()
	specs := [2]*load.SpecInfo{}
	for i, data := range [][]byte{before, after} {
		spec, err := load.NewSpecInfoFromData(openapi3.NewLoader(), data, "openapi.json")
		if err != nil {
			t.Fatal(err)
		}
		specs[i] = spec
	}
	report, sources, err := diff.GetWithOperationsSourcesMap(diff.NewConfig(), specs[0], specs[1])
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, change := range checker.CheckBackwardCompatibilityUntilLevel(checker.NewConfig(checker.GetAllChecks()), report, sources, checker.WARN) {
		found = append(found, change.SingleLineError(checker.NewDefaultLocalizer(), checker.ColorNever))
	}
	return found
}

func TestContract_breaks_no_client_of_a_released_one(t *testing.T) {
	released, err := filepath.Glob("../../released/*.json")
	if err != nil || len(released) == 0 {
		t.Fatalf("no released document: %v", err)
	}
	for _, name := range released {
		for _, found := range breaks(t, read(t, name), read(t, "../../openapi.json")) {
			t.Errorf("since %s: %s", filepath.Base(name), found)
		}
	}
}

// A check that finds nothing proves something only when it can find.
func TestBreaks_tells_what_breaks_from_what_adds(t *testing.T) {
	document := read(t, "../../released/1.0.0.json")
	for _, edit := range []struct {
		name, before, after string
		breaks              bool
	}{
		{"another path", `"/me": {`, `"/account": {`, true},
		{"a smaller maximum", `"maximum": 60`, `"maximum": 30`, true},
		{"a new required field", `"description": "Give ` + "`image_url` or `image_base64`" + `.",`, `"required": ["wait"],`, true},
		{"a field that may be missing", `"refunded",`, ``, true},
		{"another type", `"type": "boolean",` + "\n" + `            "description": "true when a failed`, `"type": "string", "description": "true when a failed`, true},
		{"one more status", `"completed",` + "\n" + `          "failed"`, `"completed", "cancelled", "failed"`, true},
		{"one more field", `"refunded": {`, `"expires_at": {"type": "string"}, "refunded": {`, false},
		{"another description", `"description": "Image jobs."`, `"description": "Jobs."`, false},
	} {
		t.Run(edit.name, func(t *testing.T) {
			edited := bytes.Replace(document, []byte(edit.before), []byte(edit.after), 1)
			if bytes.Equal(document, edited) {
				t.Fatalf("the document has no %q", edit.before)
			}
			if found := breaks(t, document, edited); (len(found) > 0) != edit.breaks {
				t.Errorf("breaks: %v, found %q", edit.breaks, found)
			}
		})
	}
}
