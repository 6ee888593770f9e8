package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"pictor/internal/app"
)

type doctorCmd struct {
	app.Connection
	app.DoctorConfig
}

// Help tells what the exit code means.
func (doctorCmd) Help() string {
	return "Exits with 1 when anything is wrong, after it has looked at all."
}

// Run prints one finding per look.
func (c *doctorCmd) Run(ctx context.Context, out *output) error {
	if err := c.Check(c.DoctorConfig); err != nil {
		return err
	}
	found := app.Doctor(ctx, c.DoctorConfig, c.Stores)
	well := true
	for _, f := range found {
		well = well && f.OK
	}
	report := struct {
		OK     bool          `json:"ok"`
		Checks []app.Finding `json:"checks"`
	}{well, found}
	err := out.print(report, func(w io.Writer) {
		for _, f := range found {
			mark := "ok"
			if !f.OK {
				mark = "FAILED"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", mark, f.Name, f.Detail)
			if f.Hint != "" {
				fmt.Fprintf(w, "\t\t%s\n", f.Hint)
			}
		}
	})
	if err == nil && !well {
		err = errors.New("something is wrong")
	}
	return err
}
