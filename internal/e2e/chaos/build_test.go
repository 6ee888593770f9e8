package chaos_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// edit changes one file of the program's source, by an exact piece of its text.
// It is applied with go build -overlay: the source itself stays as it is.
type edit struct{ file, old, new string }

// readEdits reads a file of edits:
//
//	Why, in as many lines as it takes.
//
//	== path of a file of the module
//	-- what it holds, exactly once
//	++ what stands there instead
//
// Each mark is a line of its own, and a text runs to the next mark.
func readEdits(path string) (why string, edits []edit, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	text := &why
	for line := range strings.Lines(string(b)) {
		file, isFile := strings.CutPrefix(line, "== ")
		switch {
		case isFile:
			edits = append(edits, edit{file: strings.TrimSpace(file)})
			text = new(string)
		case line == "--\n" && len(edits) > 0 && edits[len(edits)-1].old != "":
			edits = append(edits, edit{file: edits[len(edits)-1].file}) // another place in the same file
			text = &edits[len(edits)-1].old
		case line == "--\n" && len(edits) > 0:
			text = &edits[len(edits)-1].old
		case line == "++\n" && len(edits) > 0:
			text = &edits[len(edits)-1].new
		default:
			*text += line
		}
	}
	for _, e := range edits {
		if e.old == "" {
			return "", nil, fmt.Errorf("%s: no text to replace in %s", path, e.file)
		}
	}
	return strings.TrimSpace(why), edits, nil
}

// overlay writes the edited files into dir and returns the file that tells go
// build of them. An edit that does not fit the source is an error: a mutant
// that changes nothing would prove nothing.
func overlay(root, dir string, edits []edit) (string, error) {
	changed := make(map[string]string)
	for _, e := range edits {
		text, ok := changed[e.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(e.file)))
			if err != nil {
				return "", err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return "", fmt.Errorf("the edit of %s no longer applies: its text stands there %d times:\n%s", e.file, n, e.old)
		}
		changed[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	replace := make(map[string]string)
	for file, text := range changed {
		path := filepath.Join(dir, strings.ReplaceAll(file, "/", "-"))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, filepath.FromSlash(file))] = path
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, b, 0o600)
}

// build compiles the program with the edits.
func build(dir string, edits []edit) (program string, err error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	over, err := overlay(root, dir, edits)
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, "pictor")
	cmd := exec.Command("go", "build", "-tags", "disable_grpc_modules", "-overlay", over, "-o", program, "./cmd/pictor")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build pictor: %w\n%s", err, out)
	}
	return program, nil
}

// clockEdits are those that the -clocks flag asks for.
func clockEdits() ([]edit, error) {
	if *clocks == "shipped" {
		return nil, nil
	}
	_, edits, err := readEdits(filepath.Join("mutants", "clocks.edit"))
	return edits, err
}

// program builds the program once for all tests.
var program = sync.OnceValues(func() (string, error) {
	if *tested != "" {
		return *tested, nil
	}
	dir, err := os.MkdirTemp("", "pictor-chaos-")
	if err != nil {
		return "", err
	}
	watch.tell(toldMade, dir)
	edits, err := clockEdits()
	if err != nil {
		return "", err
	}
	return build(dir, edits)
})

func buildProgram(t testing.TB) string {
	t.Helper()
	p, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if filepath.Base(mod) != "go.mod" {
		return "", errors.New("find the module: these tests run in its source")
	}
	return filepath.Dir(mod), nil
}
