package main

import (
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/job"
	"pictor/internal/postgres"
	"pictor/internal/testkit/pgtest"
)

// customer is an operator whose account alice had 10 Point since October 2026
// and in November a job that failed, one that did not and a gift.
func customer(t *testing.T) *operator {
	t.Helper()
	o := newOperator(t)
	o.json("account", "create", "alice", "--balance", "10")
	db, err := postgres.Open(t.Context(), o.url, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	a, err := db.Account(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	failed := pgtest.Claimed(t, db, a.ID)
	if _, err := db.Fail(t.Context(), failed.ID, failed.Fence, "no"); err != nil {
		t.Fatal(err)
	}
	ask := pgtest.Admission(t, a.ID)
	ask.Task = job.Upscale4x
	if _, err := db.Admit(t.Context(), ask); err != nil {
		t.Fatal(err)
	}
	o.json("account", "credit", "alice", "5", "--note", `a "gift", of sorts`)

	raw, err := sql.Open("postgres", o.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	for _, statement := range []string{
		`alter table ledger disable trigger ledger_append_only`,
		`update ledger set created_at = '2026-11-01T00:00:00Z'::timestamptz + (id - 2) * interval '1 day 1 hour'`,
		`alter table ledger enable trigger ledger_append_only`,
	} {
		if _, err := raw.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func (o *operator) text(args ...string) string {
	o.t.Helper()
	code, stdout, stderr := o.run(args...)
	if code != 0 {
		o.t.Fatalf("pictor %s ended with %d: %s", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

func TestUsage_document_sums_up(t *testing.T) {
	t.Parallel()
	o := customer(t)
	got := o.json("account", "usage", "alice", "--from", "2026-11", "--to", "2026-12")
	want := map[string]any{
		"account": "alice", "from": "2026-11-01T00:00:00Z", "to": "2026-12-01T00:00:00Z", "by": "total",
		"opening_balance": 10.0, "credited": 5.0, "charged": 0.25, "refunded": 0.1, "net": 0.15, "closing_balance": 14.85,
		"rows": []any{
			map[string]any{"period": "2026-11-01T00:00:00Z", "task": "remove-bg", "jobs": 1.0, "refunds": 1.0, "charged": 0.1, "refunded": 0.1, "net": 0.0},
			map[string]any{"period": "2026-11-01T00:00:00Z", "task": "upscale-4x", "jobs": 1.0, "refunds": 0.0, "charged": 0.15, "refunded": 0.0, "net": 0.15},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	table := o.text("account", "usage", "alice", "--from", "2026-11", "--to", "2026-12", "--by", "day")
	if !containsAll(table, "2026-11-02", "closing balance", "14.85", "UTC") {
		t.Errorf("got %s", table)
	}
	if now, ok := o.json("account", "usage", "alice").(map[string]any); !ok || !strings.HasSuffix(now["from"].(string), "-01T00:00:00Z") {
		t.Errorf("without a span it is %v", now)
	}
}

func TestUsage_for_an_invoice_is_exact(t *testing.T) {
	t.Parallel()
	o := customer(t)
	want := `account,period,task,jobs,refunds,charged,refunded,net
alice,2026-11,remove-bg,1,1,0.1,0.1,0
alice,2026-11,upscale-4x,1,0,0.15,0,0.15
`
	if diff := cmp.Diff(want, o.text("account", "usage", "alice", "--from", "2026-10", "--to", "2027-01", "--by", "month", "--format", "csv")); diff != "" {
		t.Error(diff)
	}
	want = `account,period,task,jobs,refunds,charged,refunded,net
alice,2026-11-01,remove-bg,1,0,0.1,0,0.1
alice,2026-11-02,remove-bg,0,1,0,0.1,-0.1
`
	// Where the day is another one the zone says so.
	if diff := cmp.Diff(want, o.text("account", "usage", "alice", "--from", "2026-11-01T07:00:00+07:00", "--to", "2026-11-03", "--by", "day", "--format", "csv")); diff != "" {
		t.Error(diff)
	}
}

func TestLedger_exports_are_the_ledger(t *testing.T) {
	t.Parallel()
	o := customer(t)
	records, err := csv.NewReader(strings.NewReader(o.text("account", "ledger", "alice", "--format", "csv"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != 6 || cmp.Diff([]string{"id", "created_at", "kind", "amount", "balance_after", "job_id", "note"}, records[0]) != "" {
		t.Fatalf("got %v", records)
	}
	last := records[5]
	if diff := cmp.Diff([]string{"2026-11-04T03:00:00Z", "credit", "5", "14.85", "", `a "gift", of sorts`}, last[1:]); diff != "" {
		t.Error(diff)
	}
	rows, _ := o.json("account", "ledger", "alice").([]any)
	var lines []any
	for line := range strings.Lines(o.text("account", "ledger", "alice", "--format", "jsonl")) {
		var row any
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, row)
	}
	if diff := cmp.Diff(rows, lines); diff != "" || len(rows) != 5 {
		t.Errorf("%d rows: %s", len(rows), diff)
	}
	if part := o.json("account", "ledger", "alice", "--from", "2026-11-02", "--to", "2026-11-03"); len(part.([]any)) != 1 {
		t.Errorf("on one day there was %v", part)
	}
}

func TestAccounts_that_run_low_are_listed(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	for name, balance := range map[string]string{"rich": "1", "poor": "0.999", "empty": "0"} {
		o.json("account", "create", name, "--balance", balance)
	}
	o.json("account", "create", "gone")
	o.json("account", "delete", "gone")
	var names []any
	for _, row := range o.json("account", "list", "--below", "1").([]any) {
		names = append(names, fields(t, row, "name")[0])
	}
	if diff := cmp.Diff([]any{"empty", "poor"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestUsage_refuses_what_is_no_span(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	for _, row := range []struct {
		code int
		args string
		want string
	}{
		{2, "account usage alice --from yesterday", "want a month"},
		{2, "account usage alice --from 2026-12 --to 2026-11", "before it begins"},
		{2, "account ledger alice --from 2026-12 --to 2026-12", "before it begins"},
		{2, "account usage alice --by year", "by"},
		{2, "account usage alice --format csv --json", "exclude each other"},
		{2, "account ledger alice --format jsonl --json", "exclude each other"},
		{1, "account usage nobody --format csv", "no such account"},
		{1, "account ledger nobody --format csv", "no such account"},
	} {
		if code, stdout, stderr := o.run(strings.Fields(row.args)...); code != row.code || !strings.Contains(stderr, row.want) || stdout != "" {
			t.Errorf("%s: ended with %d: %s%s", row.args, code, stdout, stderr)
		}
	}
}
