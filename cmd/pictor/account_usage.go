package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"pictor/internal/app"
)

type accountUsageCmd struct {
	app.Connection
	app.Span
	Name   string `arg:"" help:"Name of the account."`
	By     string `enum:"total,month,day" default:"total" help:"A row per task for the whole span (total), or for each month or day of UTC in it."`
	Format string `enum:"text,csv" default:"text" help:"text or csv. csv has the rows alone."`
}

// Help shows how it is used.
func (accountUsageCmd) Help() string {
	return `Without a span it is this month, in UTC. A charge and its refund count when they happened.

Examples:
  pictor account usage alice --from 2026-11 --to 2026-12
  pictor account usage alice --from 2026-01 --to 2027-01 --by month --format csv > invoice.csv`
}

// Run prints the sums.
func (c *accountUsageCmd) Run(ctx context.Context, log *slog.Logger, out *output) error {
	if out.json && c.Format != "text" {
		return errTwoFormats()
	}
	admin, err := app.OpenAdmin(ctx, c.Connection, log)
	if err != nil {
		return err
	}
	defer admin.Close()
	u, err := admin.Usage(ctx, c.Name, c.Span, c.By)
	if err != nil {
		return err
	}
	if c.Format == "csv" {
		return out.csv([]string{"account", "period", "task", "jobs", "refunds", "charged", "refunded", "net"}, func(w *csv.Writer) error {
			for _, r := range u.Rows {
				err := w.Write([]string{u.Account, period(u.By, r.Period), string(r.Task), strconv.FormatInt(r.Jobs, 10), strconv.FormatInt(r.Refunds, 10),
					r.Charged.String(), r.Refunded.String(), r.Net.String()})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return out.print(u, func(w io.Writer) {
		fmt.Fprintf(w, "%s from %s to %s (UTC), in Point\n\n", u.Account, u.From.Format(time.DateTime), u.To.Format(time.DateTime))
		fmt.Fprintln(w, "PERIOD\tTASK\tJOBS\tREFUNDS\tCHARGED\tREFUNDED\tNET")
		for _, r := range u.Rows {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\t%s\n", period(u.By, r.Period), r.Task, r.Jobs, r.Refunds, r.Charged, r.Refunded, r.Net)
		}
		fmt.Fprintf(w, "all\t\t\t\t%s\t%s\t%s\n", u.Charged, u.Refunded, u.Net)
		fmt.Fprintf(w, "\nopening balance\t%s\ncredited\t%s\nspent\t%s\nclosing balance\t%s\n", u.Opening, u.Credited, u.Net, u.Closing)
	})
}

// period names a period of UTC.
func period(by string, began time.Time) string {
	switch by {
	case "month":
		return began.Format("2006-01")
	case "day":
		return began.Format(time.DateOnly)
	default:
		return instant(began)
	}
}

func errTwoFormats() error {
	return &app.UsageError{Err: errors.New("--json and --format exclude each other")}
}
