package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"pictor/internal/app"
	"pictor/internal/job"
)

type accountShowCmd struct {
	app.Connection
	Name string `arg:"" help:"Name of the account."`
}

// Run prints the account.
func (c *accountShowCmd) Run(ctx context.Context, log *slog.Logger, out *output) error {
	admin, err := app.OpenAdmin(ctx, c.Connection, log)
	if err != nil {
		return err
	}
	defer admin.Close()
	a, err := admin.DB.Account(ctx, c.Name)
	return printAccounts(out, a, err, a)
}

type accountListCmd struct{ app.Connection }

// Run prints the accounts.
func (c *accountListCmd) Run(ctx context.Context, log *slog.Logger, out *output) error {
	admin, err := app.OpenAdmin(ctx, c.Connection, log)
	if err != nil {
		return err
	}
	defer admin.Close()
	accounts, err := admin.DB.Accounts(ctx)
	return printAccounts(out, accounts, err, accounts...)
}

type accountLedgerCmd struct {
	app.Connection
	Name string `arg:"" help:"Name of the account."`
}

// Run prints the ledger, oldest row first.
func (c *accountLedgerCmd) Run(ctx context.Context, log *slog.Logger, out *output) error {
	admin, err := app.OpenAdmin(ctx, c.Connection, log)
	if err != nil {
		return err
	}
	defer admin.Close()
	rows, err := admin.Ledger(ctx, c.Name)
	if err != nil {
		return err
	}
	return out.print(rows, func(w io.Writer) {
		fmt.Fprintln(w, "TIME\tKIND\tAMOUNT\tBALANCE\tJOB\tNOTE")
		for _, r := range rows {
			var of job.ID
			if r.JobID != nil {
				of = *r.JobID
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", moment(r.CreatedAt), r.Kind, r.Amount, r.BalanceAfter, of, r.Note)
		}
	})
}
