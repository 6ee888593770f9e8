package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"pictor/internal/app"
)

type devCmd struct{ app.DevConfig }

// Help shows how it is used.
func (devCmd) Help() string {
	return `Nothing needs to be there but a Postgres server's binaries and ONNX Runtime, which "go tool task setup" installs.
When the stack is ready its addresses and a key are in DIR/dev.json. Ctrl-C stops everything.

Examples:
  pictor dev
  pictor dev --data other --json`
}

// Run runs the stack until the process is told to stop.
func (c *devCmd) Run(ctx context.Context, log *slog.Logger, out *output) error {
	stack, err := app.NewStack(ctx, c.DevConfig, log)
	if err != nil {
		return err
	}
	return stack.Run(ctx, func() error {
		return out.print(stack.Info, func(w io.Writer) {
			i := stack.Info
			fmt.Fprintf(w, "\nPictor is ready.\n\n  API\t%s\n  results\t%s\n  health\t%s/readyz\n", i.BaseURL, i.ResultsURL, stack.OpsURL())
			fmt.Fprintf(w, "  database\t%s\n  queue\t%s\n  account\t%s\n  key\t%s\n", i.DatabaseURL, i.NATSURL, i.Account, i.APIKey)
			fmt.Fprintf(w, "\nTry it:\n\n  %s\n\nCtrl-C stops it.\n\n", stack.Curl())
		})
	})
}
