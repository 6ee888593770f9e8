package main

import (
	"context"

	"pictor/internal/app"
	"pictor/internal/job"
)

type upscaleCmd struct {
	app.Batch
	Scale int `default:"2" enum:"2,4" help:"How many times larger: 2 or 4."`
}

// Help shows how it is used.
func (upscaleCmd) Help() string {
	return `A result has the type of its picture, cat-upscale-2x.jpg for cat.jpg. Pictures that have theirs already are skipped,
so a run that was interrupted may be repeated; what was charged is not charged again.

Examples:
  pictor upscale cat.jpg
  pictor upscale *.png --scale 4 -o large`
}

// Run enlarges the pictures.
func (c *upscaleCmd) Run(ctx context.Context, out *output) error {
	task, _ := job.Upscale(c.Scale)
	return runBatch(ctx, &c.Batch, task, out)
}
