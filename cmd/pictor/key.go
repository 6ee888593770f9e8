package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"pictor/internal/app"
)

type keyCmd struct {
	Create keyCreateCmd `cmd:"" help:"Make a key for an account, and show it this once."`
	List   keyListCmd   `cmd:"" help:"List the keys of an account, also the revoked ones."`
	Revoke keyRevokeCmd `cmd:"" help:"End a key for good."`
}

type keyCreateCmd struct {
	app.Connection
	app.Keys
	Account string `arg:"" help:"Name of the account."`
	Name    string `help:"What the key is for."`
}

// Help shows how it is used.
func (keyCreateCmd) Help() string { return "Example:\n  pictor key create alice --name laptop" }

// Run makes the key.
func (c *keyCreateCmd) Run(ctx context.Context, log *slog.Logger, out *output) error {
	if err := c.Check(c.Keys); err != nil {
		return err
	}
	admin, err := app.OpenAdmin(ctx, c.Connection, log)
	if err != nil {
		return err
	}
	defer admin.Close()
	k, err := admin.CreateKey(ctx, c.Account, c.Keys, c.Name)
	if err != nil {
		return err
	}
	return out.print(k, func(w io.Writer) {
		fmt.Fprintf(w, "%s\n\nThis is key %d of %s. It is not stored and cannot be shown again.\n", k.Secret, k.ID, c.Account)
	})
}
