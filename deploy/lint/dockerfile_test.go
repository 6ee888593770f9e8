package lint_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

func stages(t *testing.T) []instructions.Stage {
	t.Helper()
	file, err := parser.Parse(strings.NewReader(read(t, "../Dockerfile")))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range file.Warnings {
		t.Errorf("%s %s", w.Short, w.Detail)
	}
	lint := linter.New(&linter.Config{Warn: func(rule, description, _, message string, _ []parser.Range) {
		t.Errorf("%s: %s (%s)", rule, message, description)
	}})
	all, _, err := instructions.Parse(file.AST, lint)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	all := stages(t)
	last := all[len(all)-1]
	var user, entry string
	for _, c := range last.Commands {
		switch c := c.(type) {
		case *instructions.UserCommand:
			user = c.User
		case *instructions.EntrypointCommand:
			entry = strings.Join(c.CmdLine, " ")
			if c.PrependShell {
				t.Error("a shell would stand between the process and its signals")
			}
		case *instructions.AddCommand:
			t.Error("ADD fetches what nobody has checked")
		}
	}
	if user == "" || user == "0" || user == "root" {
		t.Errorf("it runs as %q", user)
	}
	if entry != "pictor" {
		t.Errorf("it runs %q", entry)
	}
	for _, s := range all {
		if !strings.Contains(s.BaseName, ":") || strings.HasSuffix(s.BaseName, ":latest") {
			t.Errorf("%s has no version", s.BaseName)
		}
	}
	if len(all) < 2 || strings.Contains(last.BaseName, "golang") {
		t.Error("the compiler is in the image")
	}
}

// The library in the image is the one that the tests run with.
func TestDockerfile_has_the_ONNX_Runtime_of_the_set_up(t *testing.T) {
	t.Parallel()
	docker, setup := read(t, "../Dockerfile"), read(t, "../../.ci/setup")
	for _, name := range []string{"ort_package=", "ort_x64=", "ort_arm64="} {
		_, rest, ok := strings.Cut(setup, "\n"+name)
		value, _, _ := strings.Cut(rest, "\n")
		if !ok || value == "" || !strings.Contains(docker, value) {
			t.Errorf("%s%s of .ci/setup is not in the Dockerfile", name, value)
		}
	}
}

// What .dockerignore keeps out is not needed: every file that the build reads
// is in the context.
func TestDockerignore_lets_in_what_the_build_reads(t *testing.T) {
	t.Parallel()
	patterns, err := ignorefile.ReadAll(strings.NewReader(read(t, "../Dockerfile.dockerignore")))
	if err != nil {
		t.Fatal(err)
	}
	ignored, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=Dir,Standard,Module,GoFiles,CgoFiles,CFiles,CXXFiles,HFiles,SFiles,EmbedFiles", "./cmd/pictor")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			Dir                                                             string
			Standard                                                        bool
			Module                                                          *struct{ Main bool }
			GoFiles, CgoFiles, CFiles, CXXFiles, HFiles, SFiles, EmbedFiles []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if p.Standard || p.Module == nil || !p.Module.Main {
			continue
		}
		for _, files := range [][]string{p.GoFiles, p.CgoFiles, p.CFiles, p.CXXFiles, p.HFiles, p.SFiles, p.EmbedFiles} {
			for _, name := range files {
				path, err := filepath.Rel(root, filepath.Join(p.Dir, name))
				if err != nil {
					t.Fatal(err)
				}
				seen++
				if out, err := ignored.MatchesOrParentMatches(path); err != nil || out {
					t.Errorf("%s is kept out (%v)", path, err)
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d files were looked at", seen)
	}
	for _, path := range []string{"pictor_test.go", ".git/config", "bin/pictor", "internal/e2e/testdata/x", "pictor-data/dev.json", "testdata/images/cup.png"} {
		if out, err := ignored.MatchesOrParentMatches(path); err != nil || !out {
			t.Errorf("%s is in the context (%v)", path, err)
		}
	}
}
