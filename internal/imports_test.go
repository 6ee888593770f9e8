package internal_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "pictor"

// layers is the import rule of the package comment: what the packages of a layer
// may import of ours. A package is its first path element under internal.
var layers = []struct {
	name     string
	packages []string
	may      []string
}{
	{"words", []string{"point", "job", "fault", "apikey", "logctx", "tempfile"}, []string{"words"}},
	{"tools", []string{"postgres", "cluster", "bus", "blob", "vips", "onnx", "models"}, []string{"words", "db"}},
	{"stages", []string{"intake", "admission", "work", "render", "wait", "sweep"}, []string{"words", "tools"}},
	{"edge", []string{"httpapi", "results"}, []string{"words", "tools", "stages", "gen", "openapi"}},
	{"app", []string{"app"}, []string{"words", "tools", "stages", "edge", "db", "sdk"}},
	{"testkit", []string{"testkit"}, []string{"words", "tools", "stages", "edge", "app", "db", "openapi"}},
	{"e2e", []string{"e2e"}, nil},
}

// exceptions are imports that cross layers on purpose.
var exceptions = map[[2]string]string{
	{"work", "render"}: "the worker is the stage that renders",
}

type listed struct {
	ImportPath string
	Imports    []string
}

func TestImports(t *testing.T) {
	t.Parallel()
	for _, p := range list(t) {
		path, ours := strings.CutPrefix(p.ImportPath, module+"/")
		if !ours && p.ImportPath != module {
			continue
		}
		for _, imported := range p.Imports {
			if problem := check(path, p.ImportPath, imported); problem != "" {
				t.Errorf("%s imports %s: %s", p.ImportPath, imported, problem)
			}
		}
	}
}

func check(path, from, imported string) string {
	to, ours := strings.CutPrefix(imported, module+"/")
	if !ours && imported != module {
		if layer(path) == "words" && strings.Contains(strings.SplitN(imported, "/", 2)[0], ".") {
			return "words use the standard library only"
		}
		return ""
	}
	fromLayer, toLayer := layer(path), layer(to)
	if imported == module {
		toLayer = "sdk"
	}
	if from == module {
		fromLayer = "sdk"
	}
	switch {
	case name(path) == name(to):
		return ""
	case toLayer == "testkit":
		return "testkit is for tests"
	case toLayer == "gen" && !slices.Contains([]string{"edge", "sdk", "gen"}, fromLayer):
		return "gen belongs to httpapi, the SDK and e2e"
	case fromLayer == "sdk" && toLayer != "gen":
		return "the SDK must not pull the server into its users"
	case exceptions[[2]string{name(path), name(to)}] != "":
		return ""
	}
	for _, l := range layers {
		if l.name == fromLayer && l.may != nil && !slices.Contains(l.may, toLayer) {
			return fromLayer + " must not import " + toLayer
		}
	}
	return ""
}

// name is the package's element under internal, or its first element.
func name(path string) string {
	path, _ = strings.CutPrefix(path, "internal/")
	first, _, _ := strings.Cut(path, "/")
	return first
}

func layer(path string) string {
	if !strings.HasPrefix(path, "internal/") {
		return name(path)
	}
	for _, l := range layers {
		if slices.Contains(l.packages, name(path)) {
			return l.name
		}
	}
	return "unknown"
}

// Every folder of internal has its layer: a new one must be put into the rule.
func TestImports_knows_every_package(t *testing.T) {
	t.Parallel()
	for _, p := range list(t) {
		path, ours := strings.CutPrefix(p.ImportPath, module+"/internal/")
		if ours && layer("internal/"+path) == "unknown" {
			t.Errorf("%s stands in no layer of internal/doc.go", p.ImportPath)
		}
	}
}

func list(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %s", exit.Stderr)
		}
		t.Fatal(err)
	}
	var packages []listed
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}
