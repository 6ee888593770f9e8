package chaos_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

// mutant is the program with one mistake in it, or the program as it is on a
// database that is set up wrongly.
type mutant struct {
	name     string
	edits    []edit
	args     []string
	caughtBy string // a test of this package
}

var catcher = regexp.MustCompile(`Caught by (Test\w+)\.`)

func readMutants(t *testing.T) []mutant {
	t.Helper()
	paths, err := filepath.Glob("mutants/*.edit")
	if err != nil {
		t.Fatal(err)
	}
	all := []mutant{{
		name:     "commits not written", // the delay gives them the time to be lost that a busy machine gives
		args:     []string{"-commits", "synchronous_commit=off,wal_writer_delay=10s,wal_writer_flush_after=1GB"},
		caughtBy: "TestAccepted_jobs_outlive_a_crash_of_Postgres",
	}}
	for _, path := range paths {
		why, edits, err := readEdits(path)
		if err != nil {
			t.Fatal(err)
		}
		if by := catcher.FindStringSubmatch(why); by != nil {
			all = append(all, mutant{name: strings.TrimSuffix(filepath.Base(path), ".edit"), edits: edits, caughtBy: by[1]})
		}
	}
	return all
}

// TestMutants shows that this suite can fail. Every mutant must fit the source
// as it is now; with -mutants each is built and run through the test that must
// catch it.
func TestMutants(t *testing.T) {
	mutants := readMutants(t)
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	short, err := clockEdits()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		if _, err := overlay(root, t.TempDir(), append(m.edits[:len(m.edits):len(m.edits)], short...)); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
	if _, edits, err := readEdits(filepath.Join("mutants", "enospc.edit")); err != nil {
		t.Error(err)
	} else if _, err := overlay(root, t.TempDir(), edits); err != nil {
		t.Error(err)
	}
	if t.Failed() || !*mutate {
		return
	}
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nmutant\tcaught by\tafter\tbecause")
	for _, m := range mutants {
		if !strings.Contains(m.name, *only) {
			continue
		}
		began := time.Now()
		because, err := m.run(t, short)
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			because = "NOT CAUGHT"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", m.name, m.caughtBy, time.Since(began).Round(time.Second), because)
	}
	_ = w.Flush() // to memory
	t.Logf("%s", out.String())
}

// run builds the mutant and returns what the test that catches it complained
// about. A mutant that cannot be built or started is not caught.
func (m mutant) run(t *testing.T, short []edit) (because string, err error) {
	program, err := build(t.TempDir(), append(m.edits[:len(m.edits):len(m.edits)], short...))
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], append([]string{
		"-test.run", "^" + m.caughtBy + "$", "-test.count", "1", "-test.timeout", "4m", "-tested", program, "-clocks", *clocks}, m.args...)...)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return "", fmt.Errorf("it passes %s", m.caughtBy)
	}
	if !strings.Contains(string(out), "--- FAIL: "+m.caughtBy) {
		return "", fmt.Errorf("%s did not run: %w\n%s", m.caughtBy, err, out)
	}
	return complaint(string(out)), nil
}

var complains = regexp.MustCompile(`(?m)^\s+\w+_test\.go:\d+: (.+)$`)

// complaint is the first thing that a failed test said, in short.
func complaint(out string) string {
	at := complains.FindStringIndex(out)
	if at == nil {
		return "?"
	}
	said, _, _ := strings.Cut(out[at[0]:], "--- FAIL")
	_, said, _ = strings.Cut(said, ".go:")
	_, said, _ = strings.Cut(said, ": ")
	said = strings.Join(strings.Fields(said), " ")
	return said[:min(len(said), 140)]
}
