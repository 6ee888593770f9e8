package app

import (
	"context"
	"fmt"
	"time"

	"pictor/internal/point"
	"pictor/internal/postgres"
)

// Moment is a time on the command line: a month (2026-11), a day (2026-11-21),
// both from their beginning in UTC, or a time with its zone (RFC 3339).
type Moment struct{ time.Time }

// UnmarshalText reads an argument.
func (m *Moment) UnmarshalText(b []byte) error {
	for _, layout := range []string{"2006-01", time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, string(b)); err == nil {
			m.Time = t.UTC()
			return nil
		}
	}
	return fmt.Errorf("%q is no time: want a month (2026-11) or a day (2026-11-21), which begin in UTC, or a time such as 2026-11-21T08:00:00+07:00", b)
}

// Span is a span of time on the command line. What is missing is no limit.
type Span struct {
	From Moment `placeholder:"TIME" help:"First moment: a month (2026-11) or a day (2026-11-21), which begin in UTC, or a time (2026-11-21T08:00:00+07:00)."`
	To   Moment `placeholder:"TIME" help:"The moment before which the span ends, in the same forms."`
}

func (s Span) check() error {
	if !s.From.IsZero() && !s.To.IsZero() && !s.From.Before(s.To.Time) {
		return &UsageError{fmt.Errorf("the span ends %s, before it begins %s", s.To.Format(time.RFC3339), s.From.Format(time.RFC3339))}
	}
	return nil
}

// orMonth fills in the month of now.
func (s Span) orMonth(now time.Time) Span {
	month := time.Date(now.UTC().Year(), now.UTC().Month(), 1, 0, 0, 0, 0, time.UTC)
	if s.From.IsZero() {
		s.From.Time = month
	}
	if s.To.IsZero() {
		s.To.Time = month.AddDate(0, 1, 0)
	}
	return s
}

// Usage is what an account did with its Point from From on and before To.
type Usage struct {
	Account string    `json:"account"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	By      string    `json:"by"` // total, day or month
	postgres.Usage
}

// Usage sums up the ledger of an account by task, and by day or month of UTC
// when by says so. Of what the span lacks, it is that of this month.
func (a *Admin) Usage(ctx context.Context, account string, span Span, by string) (Usage, error) {
	span = span.orMonth(time.Now())
	if err := span.check(); err != nil {
		return Usage{}, err
	}
	of, err := a.DB.Account(ctx, account)
	if err != nil {
		return Usage{}, err
	}
	period := by
	if by == "total" {
		period = ""
	}
	used, err := a.DB.Usage(ctx, of.ID, postgres.Span{From: span.From.Time, To: span.To.Time}, period)
	return Usage{of.Name, span.From.Time, span.To.Time, by, used}, err
}

// EachMovement calls fn for every movement of an account in the span, the
// oldest first.
func (a *Admin) EachMovement(ctx context.Context, account string, span Span, fn func(Movement) error) error {
	if err := span.check(); err != nil {
		return err
	}
	of, err := a.DB.Account(ctx, account)
	if err != nil {
		return err
	}
	return a.DB.EachMovement(ctx, of.ID, postgres.Span{From: span.From.Time, To: span.To.Time}, fn)
}

// Accounts lists all accounts, or the living ones with less than below.
func (a *Admin) Accounts(ctx context.Context, below *point.Amount) ([]Account, error) {
	if below == nil {
		return a.DB.Accounts(ctx)
	}
	return a.DB.AccountsBelow(ctx, *below)
}
