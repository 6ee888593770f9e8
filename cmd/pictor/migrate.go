package main

import (
	"context"
	"fmt"
	"io"

	"pictor/internal/app"
)

type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Apply what is missing. Several processes may do so at once."`
	Status migrateStatusCmd `cmd:"" help:"List every migration and whether the database has it."`
}

type migrateUpCmd struct{ app.Connection }

// Run migrates, and prints the state afterwards.
func (c *migrateUpCmd) Run(ctx context.Context, out *output) error {
	migrations, err := app.Migrate(ctx, c.Connection)
	return printMigrations(out, migrations, err)
}

type migrateStatusCmd struct{ app.Connection }

// Run prints the state.
func (c *migrateStatusCmd) Run(ctx context.Context, out *output) error {
	migrations, err := app.Migrations(ctx, c.Connection)
	return printMigrations(out, migrations, err)
}

func printMigrations(out *output, migrations []app.Migration, err error) error {
	if err != nil {
		return err
	}
	return out.print(migrations, func(w io.Writer) {
		for _, m := range migrations {
			when := "pending"
			if m.AppliedAt != nil {
				when = "applied " + moment(*m.AppliedAt)
			}
			fmt.Fprintf(w, "%d\t%s\t%s\n", m.Version, m.Name, when)
		}
	})
}
