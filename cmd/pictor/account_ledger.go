package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"pictor/internal/app"
	"pictor/internal/job"
)

type accountLedgerCmd struct {
	app.Connection
	app.Span
	Name   string `arg:"" help:"Name of the account."`
	Format string `enum:"text,csv,jsonl" default:"text" help:"text, csv or jsonl, one JSON document per line. csv and jsonl are written as they are read, however long the ledger is."`
}

// Help shows how it is used.
func (accountLedgerCmd) Help() string {
	return "Examples:\n  pictor account ledger alice\n  pictor account ledger alice --from 2026-11 --to 2026-12 --format csv > november.csv"
}

// Run prints the ledger, oldest row first.
func (c *accountLedgerCmd) Run(ctx context.Context, log *slog.Logger, out *output) error {
	if out.json && c.Format != "text" {
		return errTwoFormats()
	}
	admin, err := app.OpenAdmin(ctx, c.Connection, log)
	if err != nil {
		return err
	}
	defer admin.Close()
	switch c.Format {
	case "csv":
		return out.csv([]string{"id", "created_at", "kind", "amount", "balance_after", "job_id", "note"}, func(w *csv.Writer) error {
			return admin.EachMovement(ctx, c.Name, c.Span, func(m app.Movement) error {
				return w.Write([]string{strconv.FormatInt(m.ID, 10), instant(m.CreatedAt), m.Kind, m.Amount.String(), m.BalanceAfter.String(), jobOf(m), m.Note})
			})
		})
	case "jsonl":
		lines := json.NewEncoder(out.w)
		lines.SetEscapeHTML(false)
		return admin.EachMovement(ctx, c.Name, c.Span, func(m app.Movement) error { return lines.Encode(m) })
	}
	rows := []app.Movement{}
	err = admin.EachMovement(ctx, c.Name, c.Span, func(m app.Movement) error { rows = append(rows, m); return nil })
	if err != nil {
		return err
	}
	return out.print(rows, func(w io.Writer) {
		fmt.Fprintln(w, "TIME (UTC)\tKIND\tAMOUNT\tBALANCE\tJOB\tNOTE")
		for _, m := range rows {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", m.CreatedAt.UTC().Format(time.DateTime), m.Kind, m.Amount, m.BalanceAfter, jobOf(m), m.Note)
		}
	})
}

func jobOf(m app.Movement) string {
	var of job.ID
	if m.JobID != nil {
		of = *m.JobID
	}
	return string(of)
}

// instant writes a time for programs.
func instant(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
