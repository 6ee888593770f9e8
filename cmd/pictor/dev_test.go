package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/app"
)

func TestDev_starts_stops_and_starts_again_on_its_data(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	p, first := dev(t, data)

	info, err := os.Stat(filepath.Join(data, "dev.json"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("dev.json has mode %o: it holds a key", info.Mode().Perm())
	}
	if first.Account != "dev" || me(t, first)["balance"] != 1000.0 {
		t.Errorf("the account is %q with %v", first.Account, me(t, first))
	}
	if code := p.interrupt(); code != 0 {
		t.Errorf("Ctrl-C ended it with %d", code)
	}
	// One document, and it is dev.json.
	if diff := cmp.Diff(first, document[app.DevInfo](t, string(p.stdout.bytes()))); diff != "" {
		t.Error(diff)
	}
	for _, left := range []string{"dev.json", "postgres/data/postmaster.pid"} {
		if _, err := os.Stat(filepath.Join(data, left)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", left, err)
		}
	}

	_, second := dev(t, data)
	if second.APIKey != first.APIKey {
		t.Error("the second start made another key")
	}
	if got := me(t, second)["balance"]; got != 1000.0 {
		t.Errorf("the second start gave a balance of %v", got)
	}
}

func TestDev_writes_dev_json_with_the_fixed_fields(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	dev(t, data, "--no-worker")
	b, err := os.ReadFile(filepath.Join(data, "dev.json"))
	if err != nil {
		t.Fatal(err)
	}
	fields := document[map[string]string](t, string(b))
	for _, name := range []string{"base_url", "results_url", "database_url", "nats_url", "account", "api_key"} {
		if fields[name] == "" {
			t.Errorf("%s is missing", name)
		}
	}
	if !strings.HasSuffix(fields["base_url"], "/api/v1") {
		t.Errorf("base_url is %s", fields["base_url"])
	}
}

func TestDev_refuses_a_folder_on_which_another_runs(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	_, info := dev(t, data, "--no-worker")
	code, _, stderr := ask(t, filepath.Dir(data), "dev", "--data", data)
	if code != 1 || !strings.Contains(stderr, "another dev stack runs on") {
		t.Errorf("ended with %d: %s", code, stderr)
	}
	me(t, info) // the first one still answers
}

func TestDev_runs_beside_another_one_on_other_ports(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, a := dev(t, filepath.Join(dir, "a"), "--no-worker")
	_, b := dev(t, filepath.Join(dir, "b"), "--no-worker")
	if a.BaseURL == b.BaseURL || a.ResultsURL == b.ResultsURL || a.NATSURL == b.NATSURL {
		t.Errorf("two stacks share an address: %v and %v", a, b)
	}
	me(t, a)
	me(t, b)
	// A command with no address at all means the one that started last, as
	// neither folder is ./pictor-data.
	_, stdout, stderr := ask(t, dir, "key", "list", "dev", "--json")
	if keys := document[[]map[string]any](t, stdout); len(keys) != 1 || !strings.HasSuffix(b.APIKey, strings.TrimPrefix(keys[0]["hint"].(string), "pictor_...")) {
		t.Errorf("got %v, %s", keys, stderr)
	}
}

func TestDev_takes_an_address_that_was_given_or_none(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	data := filepath.Join(t.TempDir(), "data")
	code, _, stderr := ask(t, filepath.Dir(data), "dev", "--data", data, "--listen", taken.Addr().String())
	if code != 1 || !strings.Contains(stderr, "PICTOR_LISTEN") || !strings.Contains(stderr, "address already in use") {
		t.Errorf("ended with %d: %s", code, stderr)
	}
	if _, err := os.Stat(filepath.Join(data, "postgres/data/postmaster.pid")); !os.IsNotExist(err) {
		t.Errorf("Postgres is left running: %v", err)
	}
}

// The worst moment: the process is killed while a picture is being worked on.
// The next start brings the job to its end, once, charged once.
func TestDev_killed_in_the_middle_of_a_job_ends_it_after_the_next_start(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	p, info := dev(t, data)
	id := submit(t, info, "/upscale?scale=4", "rocket.jpg")
	until(t, p, "a worker has the job", func() bool { return show(t, info, id)["status"] != "queued" })
	p.kill()

	p, info = dev(t, data)
	until(t, p, "the job is final", func() bool {
		status := show(t, info, id)["status"]
		return status == "completed" || status == "failed"
	})
	if got := show(t, info, id); got["status"] != "completed" || got["refunded"] != false {
		t.Errorf("the job ended as %v", got)
	}
	_, stdout, _ := ask(t, filepath.Dir(data), "account", "ledger", "dev", "--data", data, "--json")
	var amounts []string
	for _, row := range document[[]map[string]any](t, stdout) {
		amounts = append(amounts, fmt.Sprint(row["kind"], " ", row["amount"]))
	}
	if diff := cmp.Diff([]string{"credit 1000", "charge -0.15"}, amounts); diff != "" {
		t.Error(diff)
	}
	if code, stdout, stderr := ask(t, filepath.Dir(data), "doctor", "--data", data); code != 0 {
		t.Errorf("the doctor found something: %s%s", stdout, stderr)
	}
}

func call(t *testing.T, info app.DevInfo, method, path, contentType string, body io.Reader) map[string]any {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, info.BaseURL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+info.APIKey)
	req.Header.Set("Content-Type", contentType)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var v map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %v", method, path, resp.Status, v)
	}
	return v
}

func me(t *testing.T, info app.DevInfo) map[string]any {
	t.Helper()
	return call(t, info, http.MethodGet, "/me", "", nil)
}

func show(t *testing.T, info app.DevInfo, id string) map[string]any {
	t.Helper()
	return call(t, info, http.MethodGet, "/jobs/"+id, "", nil)
}

func submit(t *testing.T, info app.DevInfo, path, picture string) (id string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../testdata/images", picture))
	if err != nil {
		t.Fatal(err)
	}
	return call(t, info, http.MethodPost, path, "image/jpeg", bytes.NewReader(b))["id"].(string)
}
