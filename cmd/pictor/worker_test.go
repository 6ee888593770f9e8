package main

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// charges lists the movements of the account dev but the opening balance.
func charges(t *testing.T, data string) []any {
	t.Helper()
	code, stdout, stderr := ask(t, filepath.Dir(data), "account", "ledger", "dev", "--data", data, "--json")
	if code != 0 {
		t.Fatal(stderr)
	}
	amounts := []any{}
	for _, row := range document[[]map[string]any](t, stdout)[1:] {
		amounts = append(amounts, row["amount"])
	}
	return amounts
}

// A worker that is killed in the middle of a picture, and started again, has
// the job completed once and charged once.
func TestWorker_killed_in_the_middle_of_a_job(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	stack, info := dev(t, data, "--no-worker")
	worker := start(t, filepath.Dir(data), "worker", "--data", data)
	id := submit(t, info, "/upscale?scale=4", "rocket.jpg")
	until(t, worker, "the worker has the job", func() bool { return show(t, info, id)["status"] == "processing" })
	worker.kill()
	if got := show(t, info, id)["status"]; got != "processing" {
		t.Fatalf("the job is %v: it was killed too late", got)
	}

	worker = start(t, filepath.Dir(data), "worker", "--data", data)
	until(t, stack, "the job is final", func() bool {
		status := show(t, info, id)["status"]
		return status == "completed" || status == "failed"
	})
	if got := show(t, info, id); got["status"] != "completed" || got["refunded"] != false {
		t.Errorf("the job ended as %v", got)
	}
	if diff := cmp.Diff([]any{-0.15}, charges(t, data)); diff != "" {
		t.Error(diff)
	}
	if code := worker.interrupt(); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
}
