package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"pictor/internal/job"
	"pictor/internal/point"
)

// Usage is what an account did with its Point in a span of time:
// Opening + Credited - Net = Closing, and the rows sum up to the rest.
type Usage struct {
	Opening  point.Amount `json:"opening_balance"`
	Credited point.Amount `json:"credited"` // less what was taken back
	Charged  point.Amount `json:"charged"`
	Refunded point.Amount `json:"refunded"`
	Net      point.Amount `json:"net"` // charged less refunded
	Closing  point.Amount `json:"closing_balance"`
	Rows     []UsageRow   `json:"rows"`
}

// UsageRow is what the jobs of one task cost in one period. A charge and its
// refund count in the periods in which they happened.
type UsageRow struct {
	Period   time.Time    `db:"period" json:"period"` // its beginning, in UTC
	Task     job.Task     `db:"task" json:"task"`
	Jobs     int64        `db:"jobs" json:"jobs"`       // charged ones
	Refunds  int64        `db:"refunds" json:"refunds"` // refunded ones
	Charged  point.Amount `db:"charged" json:"charged"`
	Refunded point.Amount `db:"refunded" json:"refunded"`
	Net      point.Amount `db:"net" json:"net"`
}

// Span is the time from From on and before To. The zero time is no limit.
type Span struct{ From, To time.Time }

func (s Span) limits() (from, to sql.NullTime) {
	return sql.NullTime{Time: s.From, Valid: !s.From.IsZero()}, sql.NullTime{Time: s.To, Valid: !s.To.IsZero()}
}

// Usage sums up an account's ledger by task and by period: "day" or "month" of
// UTC, or "" for the whole span. It reads all of the ledger up to the end of
// the span, in one statement: all its sums are of one moment.
func (db *DB) Usage(ctx context.Context, account int64, span Span, by string) (Usage, error) {
	from, to := span.limits()
	var rows []struct {
		UsageRow
		Opening  point.Amount `db:"opening"`
		Credited point.Amount `db:"credited"`
	}
	err := db.list(ctx, &rows, `
		with moved as (
			select l.kind, l.amount, l.job_id, l.created_at, coalesce(l.created_at < $2::timestamptz, false) as before
			from ledger l
			where l.account_id = $1 and ($3::timestamptz is null or l.created_at < $3)
		), named as (
			select m.*, j.task,
				case when j.id is not null and $4 <> '' then date_trunc($4, m.created_at, 'UTC') end as period
			from moved m left join jobs j on j.id = m.job_id and not m.before
		)
		select
			coalesce(period, $2, '0001-01-01Z') as period, coalesce(task, '') as task,
			count(*) filter (where kind = 'charge' and not before) as jobs,
			count(*) filter (where kind = 'refund' and not before) as refunds,
			coalesce(-sum(amount) filter (where kind = 'charge' and not before), 0)::bigint as charged,
			coalesce(sum(amount) filter (where kind = 'refund' and not before), 0)::bigint as refunded,
			coalesce(-sum(amount) filter (where kind <> 'credit' and not before), 0)::bigint as net,
			coalesce(sum(amount) filter (where before), 0)::bigint as opening,
			coalesce(sum(amount) filter (where kind = 'credit' and not before), 0)::bigint as credited
		from named n group by n.period, task order by 1, 2`, account, from, to, by)
	if err != nil {
		return Usage{}, fmt.Errorf("sum up the usage of account %d: %w", account, err)
	}
	u := Usage{Rows: []UsageRow{}}
	for _, r := range rows {
		u.Opening += r.Opening
		u.Credited += r.Credited
		u.Charged += r.Charged
		u.Refunded += r.Refunded
		if r.Task != "" {
			r.Period = r.Period.UTC()
			u.Rows = append(u.Rows, r.UsageRow)
		}
	}
	u.Net = u.Charged - u.Refunded
	u.Closing = u.Opening + u.Credited - u.Net
	return u, nil
}

// page is how many rows of a ledger are read at a time.
const page = 1000

// EachMovement calls fn for every movement of an account in a span, the oldest
// first, and ends with its error. A ledger of any length costs little memory,
// and no transaction that lasts: rows come page by page, and as none is ever
// changed or put in between, a page that is read stays true.
func (db *DB) EachMovement(ctx context.Context, account int64, span Span, fn func(LedgerRow) error) error {
	from, to := span.limits()
	for last := int64(0); ; {
		var rows []LedgerRow
		err := db.list(ctx, &rows, `
			select id, kind, amount, balance_after, job_id, note, created_at from ledger
			where account_id = $1 and id > $2
				and ($3::timestamptz is null or created_at >= $3) and ($4::timestamptz is null or created_at < $4)
			order by id limit $5`, account, last, from, to, page)
		if err != nil {
			return fmt.Errorf("read the ledger of account %d: %w", account, err)
		}
		for _, row := range rows {
			if err := fn(row); err != nil {
				return err
			}
		}
		if len(rows) < page {
			return nil
		}
		last = rows[len(rows)-1].ID
	}
}

// AccountsBelow lists the living accounts with a smaller balance, the poorest
// first.
func (db *DB) AccountsBelow(ctx context.Context, balance point.Amount) ([]Account, error) {
	accounts := []Account{}
	err := db.list(ctx, &accounts, `
		select `+accountColumns+` from accounts where balance < $1 and deleted_at is null order by balance, id`, int64(balance))
	if err != nil {
		return nil, fmt.Errorf("list accounts: %w", err)
	}
	return accounts, nil
}
