package main

import (
	"context"
	"log/slog"

	"pictor/internal/app"
	"pictor/internal/point"
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

type accountListCmd struct {
	app.Connection
	Below *point.Amount `placeholder:"POINT" help:"Only those with a smaller balance, the smallest first, without the deleted ones."`
}

// Run prints the accounts.
func (c *accountListCmd) Run(ctx context.Context, log *slog.Logger, out *output) error {
	admin, err := app.OpenAdmin(ctx, c.Connection, log)
	if err != nil {
		return err
	}
	defer admin.Close()
	accounts, err := admin.Accounts(ctx, c.Below)
	return printAccounts(out, accounts, err, accounts...)
}
