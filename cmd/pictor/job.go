package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"pictor/internal/app"
	"pictor/internal/job"
)

type jobCmd struct {
	List jobListCmd `cmd:"" help:"List jobs, the newest first."`
	Show jobShowCmd `cmd:"" help:"Show a job."`
}

type jobListCmd struct {
	app.Connection
	app.Links
	Account string `help:"Only the jobs of this account."`
	Limit   int    `default:"1000" help:"How many at most."`
}

// Run prints the jobs.
func (c *jobListCmd) Run(ctx context.Context, log *slog.Logger, out *output) error {
	admin, err := app.OpenAdmin(ctx, c.Connection, log)
	if err != nil {
		return err
	}
	defer admin.Close()
	rows, err := admin.Jobs(ctx, c.Links, c.Account, c.Limit)
	return printJobs(out, rows, err, rows...)
}

type jobShowCmd struct {
	app.Connection
	app.Links
	ID job.ID `arg:"" name:"id" help:"Id of the job."`
}

// Run prints the job.
func (c *jobShowCmd) Run(ctx context.Context, log *slog.Logger, out *output) error {
	admin, err := app.OpenAdmin(ctx, c.Connection, log)
	if err != nil {
		return err
	}
	defer admin.Close()
	row, err := admin.Job(ctx, c.Links, c.ID)
	return printJobs(out, row, err, row)
}

func printJobs(out *output, document any, err error, rows ...app.JobRow) error {
	if err != nil {
		return err
	}
	return out.print(document, func(w io.Writer) {
		fmt.Fprintln(w, "ID\tACCOUNT\tTASK\tSTATE\tPROGRESS\tCOST\tREFUNDED\tCREATED\tMESSAGE")
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d%%\t%s\t%s\t%s\t%s\n", r.ID, r.Account, r.Task, r.State, r.Progress, r.Cost, yes(r.Refunded), moment(r.CreatedAt), r.Message)
		}
	})
}
