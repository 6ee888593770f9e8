package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"pictor/internal/app"
)

type keyListCmd struct {
	app.Connection
	Account string `arg:"" help:"Name of the account."`
}

// Run prints the keys.
func (c *keyListCmd) Run(ctx context.Context, log *slog.Logger, out *output) error {
	admin, err := app.OpenAdmin(ctx, c.Connection, log)
	if err != nil {
		return err
	}
	defer admin.Close()
	keys, err := admin.Keys(ctx, c.Account)
	return printKeys(out, keys, err, keys...)
}

type keyRevokeCmd struct {
	app.Connection
	ID int64 `arg:"" name:"id" help:"Number of the key, as \"key list\" shows it."`
}

// Run ends the key.
func (c *keyRevokeCmd) Run(ctx context.Context, log *slog.Logger, out *output) error {
	admin, err := app.OpenAdmin(ctx, c.Connection, log)
	if err != nil {
		return err
	}
	defer admin.Close()
	k, err := admin.RevokeKey(ctx, c.ID)
	return printKeys(out, k, err, k)
}

func printKeys(out *output, document any, err error, keys ...app.Key) error {
	if err != nil {
		return err
	}
	return out.print(document, func(w io.Writer) {
		fmt.Fprintln(w, "ID\tKEY\tNAME\tCREATED\tREVOKED")
		for _, k := range keys {
			revoked := "-"
			if k.RevokedAt != nil {
				revoked = moment(*k.RevokedAt)
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", k.ID, k.Hint, k.Name, moment(k.CreatedAt), revoked)
		}
	})
}
