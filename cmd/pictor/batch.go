package main

import (
	"context"
	"fmt"
	"io"

	"pictor/internal/app"
	"pictor/internal/job"
)

// runBatch runs the pictures under a bar, and prints what became of each.
func runBatch(ctx context.Context, b *app.Batch, task job.Task, out *output) error {
	bar := newBar(out.progress, b.Files)
	outcomes, failed := b.Run(ctx, task, bar.update)
	bar.clear()
	if outcomes == nil {
		return failed
	}
	err := out.print(outcomes, func(w io.Writer) {
		for _, o := range outcomes {
			switch {
			case o.Error != "":
				fmt.Fprintf(w, "%s\tfailed\t%s\n", o.File, o.Error)
			case o.Skipped:
				fmt.Fprintf(w, "%s\tskipped\t%s is there already\n", o.File, o.Output)
			default:
				fmt.Fprintf(w, "%s\tdone\t%s\n", o.File, o.Output)
			}
		}
	})
	if err != nil {
		return err
	}
	return failed
}
