package main

import (
	"context"

	"pictor/internal/app"
	"pictor/internal/job"
)

type removeBGCmd struct{ app.Batch }

// Help shows how it is used.
func (removeBGCmd) Help() string {
	return `A result is a PNG with transparency, cat-remove-bg.png for cat.jpg. Pictures that have theirs already are skipped,
so a run that was interrupted may be repeated; what was charged is not charged again.

Examples:
  pictor remove-bg cat.jpg
  pictor remove-bg shop/*.jpg -o cutouts --base-url https://api.example.com/api/v1 --api-key "$KEY"`
}

// Run removes the backgrounds.
func (c *removeBGCmd) Run(ctx context.Context, out *output) error {
	return runBatch(ctx, &c.Batch, job.RemoveBG, out)
}
