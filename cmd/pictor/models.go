package main

import (
	"errors"
	"fmt"
	"io"

	"pictor/internal/app"
)

type modelsCmd struct {
	List   modelsListCmd   `cmd:"" help:"List the models by the names that the configuration uses."`
	Verify modelsVerifyCmd `cmd:"" help:"Compare every model with its checksum."`
}

type modelsListCmd struct{}

// Run prints the models.
func (modelsListCmd) Run(out *output) error {
	models := app.Models()
	return out.print(models, func(w io.Writer) {
		fmt.Fprintln(w, "NAME\tTASK\tORIGIN\tSHA-256")
		for _, m := range models {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", m.Name, m.Task, m.Origin, m.SHA256)
		}
	})
}

type modelsVerifyCmd struct{}

// Run prints what it found of each model.
func (modelsVerifyCmd) Run(out *output) error {
	found, intact := app.VerifyModels()
	err := out.print(found, func(w io.Writer) {
		for _, f := range found {
			fmt.Fprintf(w, "%s\t%s\n", f.Name, f.Detail)
		}
	})
	if err == nil && !intact {
		err = errors.New("a model is not what it should be")
	}
	return err
}
