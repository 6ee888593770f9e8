package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"pictor/internal/app"
)

type serveCmd struct {
	app.Connection
	app.APIConfig
}

// Help shows how it is used.
func (serveCmd) Help() string {
	return `Examples:
  PICTOR_DATABASE_URL=postgres://pictor@db/pictor PICTOR_NATS_URL=nats://queue:4222 pictor serve
  pictor serve --listen 0.0.0.0:8080 --base-url https://api.example.com/api/v1 --results-url https://results.example.com`
}

// Run serves until the process is told to stop.
func (c *serveCmd) Run(ctx context.Context, log *slog.Logger, out *output) error {
	if err := c.Check(c.APIConfig); err != nil {
		return err
	}
	a, err := app.NewAPI(ctx, c.APIConfig, c.Stores, log)
	if err != nil {
		return err
	}
	where := map[string]string{"base_url": a.BaseURL, "results_url": a.ResultsURL, "ops_url": a.OpsURL}
	if err := out.print(where, func(w io.Writer) { fmt.Fprintf(w, "API\t%s\nresults\t%s\n", a.BaseURL, a.ResultsURL) }); err != nil {
		return err
	}
	return a.Run(ctx)
}
