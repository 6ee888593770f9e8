package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"pictor/internal/app"
	"pictor/internal/point"
)

type accountCreditCmd struct {
	app.Connection
	Name   string       `arg:"" help:"Name of the account."`
	Amount point.Amount `arg:"" help:"Point to add, such as 10 or 0.5. A negative amount, after \"--\", takes Point back."`
	Note   string       `help:"Why, for the ledger."`
}

// Help shows how it is used.
func (accountCreditCmd) Help() string {
	return "Examples:\n  pictor account credit alice 10 --note \"invoice 42\"\n  pictor account credit alice -- -2.5"
}

// Run adds the amount, and prints the row of the ledger.
func (c *accountCreditCmd) Run(ctx context.Context, log *slog.Logger, out *output) error {
	admin, err := app.OpenAdmin(ctx, c.Connection, log)
	if err != nil {
		return err
	}
	defer admin.Close()
	row, err := admin.Credit(ctx, c.Name, c.Amount, c.Note)
	if err != nil {
		return err
	}
	return out.print(row, func(w io.Writer) {
		fmt.Fprintf(w, "%s has %s Point now.\n", c.Name, row.BalanceAfter)
	})
}

type accountDeleteCmd struct {
	app.Connection
	Name string `arg:"" help:"Name of the account."`
}

// Run deletes the account.
func (c *accountDeleteCmd) Run(ctx context.Context, log *slog.Logger, out *output) error {
	admin, err := app.OpenAdmin(ctx, c.Connection, log)
	if err != nil {
		return err
	}
	defer admin.Close()
	a, err := admin.DeleteAccount(ctx, c.Name)
	return printAccounts(out, a, err, a)
}
