package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"pictor/internal/app"
)

type demoCmd struct{ app.Demo }

// Run prints a row per job as it ends; stdout is a document with --json.
func (c *demoCmd) Run(ctx context.Context, log *slog.Logger, out *output) error {
	rows := []app.DemoRow{}
	if !out.json {
		fmt.Fprintf(out.w, "%-11s %-27s %-9s %-15s %8s %6s %9s\n", "TASK", "PICTURE", "SIZE", "RESULT", "SECONDS", "COST", "BALANCE")
	}
	failed := c.Demo.Run(ctx, log, func(r app.DemoRow) {
		rows = append(rows, r)
		if !out.json {
			fmt.Fprintf(out.w, "%-11s %-27s %-9s %-15s %8.2f %6g %9g\n", r.Task, r.Picture, r.Size, r.Result, r.Seconds, r.Cost, r.Balance)
		}
	})
	err := out.print(rows, func(w io.Writer) {
		fmt.Fprintf(w, "\n%d results are in %s/, before and after side by side in %s/before-after/.\n", len(rows), c.Output, c.Output)
	})
	if failed != nil {
		return failed
	}
	return err
}
