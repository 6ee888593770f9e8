package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/apikey"
	"pictor/internal/testkit/pgtest"
)

// operator runs commands on a database of its own.
type operator struct {
	t   *testing.T
	url string
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	return &operator{t, pgtest.URL(t)}
}

func (o *operator) run(args ...string) (code int, stdout, stderr string) {
	o.t.Helper()
	var out, errs bytes.Buffer
	// Flags must come before "--", behind which everything is an argument.
	at := len(args)
	for i, a := range args {
		if a == "--" {
			at = i
			break
		}
	}
	// Nothing listens there: what needs no queue must not fail without one.
	flags := []string{"--database-url", o.url, "--nats-url", "nats://127.0.0.1:1", "--log-level", "error"}
	code = run(append(append(append([]string{}, args[:at]...), flags...), args[at:]...), &out, &errs)
	return code, out.String(), errs.String()
}

// json runs a command that must succeed, and reads its document.
func (o *operator) json(args ...string) any {
	o.t.Helper()
	code, stdout, stderr := o.run(append([]string{"--json"}, args...)...)
	if code != 0 {
		o.t.Fatalf("pictor %s ended with %d: %s", strings.Join(args, " "), code, stderr)
	}
	return document[any](o.t, stdout)
}

func fields(t *testing.T, v any, names ...string) []any {
	t.Helper()
	row, ok := v.(map[string]any)
	if !ok {
		t.Fatalf("%v is no object", v)
	}
	var values []any
	for _, name := range names {
		if _, ok := row[name]; !ok {
			t.Errorf("%s is missing in %v", name, row)
		}
		values = append(values, row[name])
	}
	return values
}

func TestAccount_documents(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	for _, row := range []struct {
		command string
		want    []any
	}{
		{"account create alice --balance 10 --vip", []any{"alice", 10.0, true, false}},
		{"account show alice", []any{"alice", 10.0, true, false}},
		{"account create bob", []any{"bob", 0.0, false, false}},
		{"account delete bob", []any{"bob", 0.0, false, true}},
	} {
		if diff := cmp.Diff(row.want, fields(t, o.json(strings.Fields(row.command)...), "name", "balance", "vip", "deleted")); diff != "" {
			t.Errorf("%s: %s", row.command, diff)
		}
	}
	list, _ := o.json("account", "list").([]any)
	if len(list) != 2 {
		t.Errorf("%d accounts are listed, want 2", len(list))
	}
}

func TestAccount_ledger_documents_are_exact(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.json("account", "create", "alice", "--balance", "10")
	if got := fields(t, o.json("account", "credit", "alice", "0.15", "--note", "gift"), "amount", "balance_after", "note"); !cmp.Equal(got, []any{0.15, 10.15, "gift"}) {
		t.Errorf("got %v", got)
	}
	o.json("account", "credit", "alice", "--", "-0.05")
	var rows []string
	for _, row := range o.json("account", "ledger", "alice").([]any) {
		values := fields(t, row, "amount", "kind", "job_id", "balance_after", "created_at")
		rows = append(rows, strings.TrimSpace(fmt.Sprintln(values[:4]...)))
	}
	if diff := cmp.Diff([]string{"10 credit <nil> 10", "0.15 credit <nil> 10.15", "-0.05 credit <nil> 10.1"}, rows); diff != "" {
		t.Error(diff)
	}
	// Not one digit more than there is, in the text of the document too.
	if _, stdout, _ := o.run("account", "show", "alice", "--json"); !strings.Contains(stdout, `"balance": 10.1,`) {
		t.Errorf("got %s", stdout)
	}
}

func TestKey_documents(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.json("account", "create", "alice")
	created := fields(t, o.json("key", "create", "alice", "--name", "laptop"), "id", "key", "name")
	if _, ok := apikey.Parse("pictor", created[1].(string)); !ok || created[2] != "laptop" {
		t.Errorf("got %v", created)
	}
	_, stdout, _ := o.run("key", "list", "alice", "--json")
	if strings.Contains(stdout, created[1].(string)) {
		t.Error("the key is shown a second time")
	}
	if rows := document[[]any](t, stdout); len(rows) != 1 || fields(t, rows[0], "revoked_at")[0] != nil {
		t.Errorf("got %v", rows)
	}
	id, err := json.Marshal(created[0])
	if err != nil {
		t.Fatal(err)
	}
	if fields(t, o.json("key", "revoke", string(id)), "revoked_at")[0] == nil {
		t.Error("the key is not revoked")
	}
	for range 5 {
		o.json("key", "create", "alice")
	}
	if code, _, stderr := o.run("key", "create", "alice"); code != 1 || !strings.Contains(stderr, "revoke one first") {
		t.Errorf("a sixth key: %d %s", code, stderr)
	}
}

func TestJob_and_migration_documents(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	if jobs := o.json("job", "list"); !cmp.Equal(jobs, []any{}) {
		t.Errorf("no job is listed as %v, want an empty array", jobs)
	}
	if code, _, stderr := o.run("job", "show", "0198f7a2-0000-7000-8000-000000000000"); code != 1 || !strings.Contains(stderr, "No such job") {
		t.Errorf("a job that is not there: %d %s", code, stderr)
	}
	for _, command := range []string{"up", "status"} {
		for _, m := range o.json("migrate", command).([]any) {
			if fields(t, m, "version", "name", "applied", "applied_at")[2] != true {
				t.Errorf("migrate %s: %v", command, m)
			}
		}
	}
}

func TestMigrate_up_makes_an_empty_database_usable(t *testing.T) {
	t.Parallel()
	o := &operator{t, pgtest.Empty(t)}
	if code, _, stderr := o.run("account", "list"); code != 1 || !strings.Contains(stderr, "pictor migrate up") {
		t.Errorf("without a schema: %d %s", code, stderr)
	}
	o.json("migrate", "up")
	o.json("account", "list")
}

func TestDoctor_fails_and_still_looks_at_everything_when_the_queue_is_gone(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	code, stdout, _ := o.run("doctor", "--json", "--blob-url", "mem://")
	if code != 1 {
		t.Errorf("it ended with %d, want 1", code)
	}
	found := make(map[any]any)
	for _, c := range fields(t, document[any](t, stdout), "checks")[0].([]any) {
		values := fields(t, c, "name", "ok")
		found[values[0]] = values[1]
	}
	for name, want := range map[string]bool{"database": true, "schema": true, "queue": false, "store": true, "models": true, "engine": true, "books: balance_is_ledger": true} {
		if found[name] != want {
			t.Errorf("%s is %v, want %v", name, found[name], want)
		}
	}
}

func TestUsage_mistakes_end_with_2(t *testing.T) {
	t.Parallel()
	for _, command := range []string{
		"", "nothing", "account", "account create", "account create a --balance 1.0001", "account credit a b",
		"serve --listen nowhere", "worker --engine none", "key create a --key-prefix %", "upscale", "dev --stuck-after 1s",
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			args := strings.Fields(command)
			if len(args) > 0 && args[0] != "dev" && args[0] != "upscale" && args[0] != "nothing" && len(args) > 1 {
				args = append(args, "--database-url", "postgres://nowhere.invalid/x")
			}
			if code := run(args, &out, &errs); code != 2 || errs.Len() == 0 || out.Len() > 0 {
				t.Errorf("ended with %d, stdout %q, stderr %q", code, &out, &errs)
			}
		})
	}
}

func TestHelp_of_every_command_is_there(t *testing.T) {
	t.Parallel()
	for _, command := range []string{
		"dev", "serve", "worker", "migrate up", "migrate status", "account create", "account show", "account list", "account credit",
		"account ledger", "account usage", "account delete", "key create", "key list", "key revoke", "job list", "job show", "doctor", "config",
		"models list", "models pull", "models verify", "remove-bg", "upscale",
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := ask(t, t.TempDir(), append(strings.Fields(command), "--help")...)
			if code != 0 || !strings.Contains(stdout, "Usage: pictor "+command) {
				t.Errorf("ended with %d: %s%s", code, stdout, stderr)
			}
		})
	}
}
