package postgres_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/testkit/pgtest"
)

// at moves ledger rows to a time: the books themselves only know now.
func (b books) at(t testing.TB, moment time.Time, where string, args ...any) {
	t.Helper()
	b.exec(t, `alter table ledger disable trigger ledger_append_only`)
	b.exec(t, `update ledger set created_at = $1 where `+where, append([]any{moment}, args...)...)
	b.exec(t, `alter table ledger enable trigger ledger_append_only`)
}

func utc(t testing.TB, s string) time.Time {
	t.Helper()
	moment, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return moment
}

func TestUsage_counts_each_charge_and_refund_when_it_happened(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	a := pgtest.NewAccount(t, b.DB, 10*point.Point)
	other := pgtest.NewAccount(t, b.DB, 10*point.Point)
	pgtest.Queued(t, b.DB, other.ID)
	b.at(t, utc(t, "2026-10-31T12:00:00Z"), `account_id = $2`, a.ID)

	// In Hanoi and in UTC it is another day; the charge is of October, its refund
	// of November.
	charged := pgtest.Claimed(t, b.DB, a.ID)
	must[bool](t)(b.Fail(t.Context(), charged.ID, charged.Fence, "no"))
	b.at(t, utc(t, "2026-10-31T23:59:59.999999Z"), `job_id = $2 and kind = 'charge'`, string(charged.ID))
	b.at(t, utc(t, "2026-11-01T00:00:00Z"), `job_id = $2 and kind = 'refund'`, string(charged.ID))
	large := pgtest.Admission(t, a.ID)
	large.Task = job.Upscale4x
	must[postgres.Admitted](t)(b.Admit(t.Context(), large))
	b.at(t, utc(t, "2026-11-30T23:00:00Z"), `job_id = $2`, string(large.ID))
	credit := must[postgres.LedgerRow](t)(b.Credit(t.Context(), a.ID, 5*point.Point, ""))
	b.at(t, utc(t, "2026-11-15T00:00:00Z"), `id = $2`, credit.ID)
	next := pgtest.Queued(t, b.DB, a.ID)
	b.at(t, utc(t, "2026-12-01T00:00:00Z"), `job_id = $2`, string(next.ID))

	november := postgres.Span{From: utc(t, "2026-11-01T00:00:00Z"), To: utc(t, "2026-12-01T00:00:00Z")}
	want := postgres.Usage{
		Opening: 9900, Credited: 5000, Charged: 150, Refunded: 100, Net: 50, Closing: 14850,
		Rows: []postgres.UsageRow{
			{Period: november.From, Task: job.RemoveBG, Refunds: 1, Refunded: 100, Net: -100},
			{Period: november.From, Task: job.Upscale4x, Jobs: 1, Charged: 150, Net: 150},
		},
	}
	same(t, "november", want, must[postgres.Usage](t)(b.Usage(t.Context(), a.ID, november, "")))
	same(t, "november by month", want, must[postgres.Usage](t)(b.Usage(t.Context(), a.ID, november, "month")))
	want.Rows[1].Period = utc(t, "2026-11-30T00:00:00Z")
	same(t, "november by day", want, must[postgres.Usage](t)(b.Usage(t.Context(), a.ID, november, "day")))
	ever := must[postgres.Usage](t)(b.Usage(t.Context(), a.ID, postgres.Span{}, "month"))
	same(t, "what the account has", b.purse(t, a.ID).Balance, ever.Closing)
	same(t, "months", 4, len(ever.Rows))
	empty := must[postgres.Usage](t)(b.Usage(t.Context(), a.ID, postgres.Span{To: utc(t, "2026-01-01T00:00:00Z")}, "day"))
	same(t, "before there was an account", postgres.Usage{Rows: []postgres.UsageRow{}}, empty)
}

// Whatever happened and wherever the borders are, the sums are the ledger's.
func TestUsage_sums_up_to_the_ledger(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	start := utc(t, "2026-11-28T00:00:00Z")
	rapid.Check(t, func(r *rapid.T) {
		a := pgtest.NewAccount(t, b.DB, 10*point.Point)
		for range rapid.IntRange(0, 6).Draw(r, "jobs") {
			ask := pgtest.Admission(t, a.ID)
			ask.Task = rapid.SampledFrom(job.Tasks()).Draw(r, "task")
			must[postgres.Admitted](t)(b.Admit(t.Context(), ask))
			j := b.claim(t, ask.ID, hour)
			if rapid.Bool().Draw(r, "fails") {
				must[bool](t)(b.Fail(t.Context(), j.ID, j.Fence, "no"))
			} else {
				must[bool](t)(b.Complete(t.Context(), j.ID, j.Fence, result(j.ID)))
			}
			if amount := rapid.IntRange(-200, 200).Draw(r, "credit"); amount != 0 {
				must[postgres.LedgerRow](t)(b.Credit(t.Context(), a.ID, point.Amount(amount), ""))
			}
		}
		// Rows some hours apart, in their order.
		var rows []postgres.LedgerRow
		moment := start
		for _, row := range must[[]postgres.LedgerRow](t)(b.Ledger(t.Context(), a.ID)) {
			moment = moment.Add(time.Duration(rapid.IntRange(0, 30).Draw(r, "hours")) * time.Hour)
			row.CreatedAt = moment
			b.at(t, moment, `id = $2`, row.ID)
			rows = append(rows, row)
		}
		span := postgres.Span{From: start.Add(time.Duration(rapid.IntRange(-10, 200).Draw(r, "from")) * time.Hour)}
		span.To = span.From.Add(time.Duration(rapid.IntRange(0, 200).Draw(r, "length")) * time.Hour)
		by := rapid.SampledFrom([]string{"", "day", "month"}).Draw(r, "by")

		var want postgres.Usage
		for _, row := range rows {
			switch {
			case row.CreatedAt.Before(span.From):
				want.Opening += row.Amount
			case !row.CreatedAt.Before(span.To):
				continue
			case row.Kind == "charge":
				want.Charged -= row.Amount
			case row.Kind == "refund":
				want.Refunded += row.Amount
			default:
				want.Credited += row.Amount
			}
			want.Closing += row.Amount
		}
		want.Net = want.Charged - want.Refunded
		got := must[postgres.Usage](t)(b.Usage(t.Context(), a.ID, span, by))
		parts := got.Rows
		got.Rows = nil
		if diff := cmp.Diff(want, got); diff != "" {
			r.Fatal(diff)
		}
		var sum postgres.Usage
		seen := make(map[string]bool)
		for _, row := range parts {
			sum.Charged += row.Charged
			sum.Refunded += row.Refunded
			sum.Net += row.Net
			key := fmt.Sprint(row.Period, row.Task)
			if seen[key] || row.Net != row.Charged-row.Refunded {
				r.Fatalf("the row %v is there twice, or is wrong", row)
			}
			seen[key] = true
		}
		if diff := cmp.Diff(postgres.Usage{Charged: want.Charged, Refunded: want.Refunded, Net: want.Net}, sum); diff != "" {
			r.Fatal(diff)
		}

		var listed []postgres.LedgerRow
		err := b.EachMovement(t.Context(), a.ID, span, func(row postgres.LedgerRow) error { listed = append(listed, row); return nil })
		if err != nil {
			r.Fatal(err)
		}
		var moved point.Amount
		for _, row := range listed {
			moved += row.Amount
		}
		if moved != want.Closing-want.Opening {
			r.Fatalf("the rows of the span sum up to %s, want %s", moved, want.Closing-want.Opening)
		}
	})
}

func TestLedger_of_any_length_comes_in_its_order(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	a := pgtest.NewAccount(t, b.DB, 0)
	b.exec(t, `insert into ledger (account_id, kind, amount, balance_after) select $1, 'credit', 1, n from generate_series(1, 2500) n`, a.ID)
	b.exec(t, `update accounts set balance = 2500 where id = $1`, a.ID)
	var next point.Amount
	err := b.EachMovement(t.Context(), a.ID, postgres.Span{}, func(row postgres.LedgerRow) error {
		next++
		if row.BalanceAfter != next {
			return fmt.Errorf("row %d has the balance %d", next, row.BalanceAfter)
		}
		return nil
	})
	if err != nil || next != 2500 {
		t.Errorf("%d rows, %v", next, err)
	}
	enough := errors.New("enough")
	if err := b.EachMovement(t.Context(), a.ID, postgres.Span{}, func(postgres.LedgerRow) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v, want the caller's error", err)
	}
}

func TestAccountsBelow_lists_the_living_poor(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	var want []int64
	for _, balance := range []point.Amount{999, 0, 1000, 5000} {
		a := pgtest.NewAccount(t, b.DB, balance)
		if balance < point.Point {
			want = append([]int64{a.ID}, want...)
		}
	}
	if err := b.DeleteAccount(t.Context(), pgtest.NewAccount(t, b.DB, 1).ID); err != nil {
		t.Fatal(err)
	}
	var got []int64
	for _, a := range must[[]postgres.Account](t)(b.AccountsBelow(t.Context(), point.Point)) {
		got = append(got, a.ID)
	}
	same(t, "accounts", want, got)
}
