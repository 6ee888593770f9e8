package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"pictor/internal/app"
)

type workerCmd struct {
	app.Connection
	app.WorkerConfig
}

// Help shows how it is used.
func (workerCmd) Help() string {
	return `Examples:
  PICTOR_DATABASE_URL=postgres://pictor@db/pictor PICTOR_NATS_URL=nats://queue:4222 pictor worker
  pictor worker --tasks remove-bg --workers 4
  pictor worker --data pictor-data        a second worker beside "pictor dev"`
}

// Run works until the process is told to stop.
func (c *workerCmd) Run(ctx context.Context, log *slog.Logger, out *output) error {
	if err := c.Check(c.WorkerConfig); err != nil {
		return err
	}
	worker, err := app.NewWorker(ctx, c.WorkerConfig, c.Stores, log)
	if err != nil {
		return err
	}
	where := map[string]string{"ops_url": worker.OpsURL}
	if err := out.print(where, func(w io.Writer) { fmt.Fprintf(w, "health\t%s/readyz\n", worker.OpsURL) }); err != nil {
		return err
	}
	return worker.Run(ctx)
}
