package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"pictor/internal/app"
	"pictor/internal/models"
)

type modelsCmd struct {
	List   modelsListCmd   `cmd:"" help:"List the models by the names that the configuration uses."`
	Pull   modelsPullCmd   `cmd:"" help:"Download a model into PICTOR_MODELS_DIR. What has come is kept: pull again to go on."`
	Verify modelsVerifyCmd `cmd:"" help:"Compare every model that is there with its checksum."`
}

type modelsListCmd struct{ app.ModelChoice }

// Run prints the models.
func (c *modelsListCmd) Run(out *output) error {
	models := app.Models(c.ModelChoice)
	return out.print(models, func(w io.Writer) {
		fmt.Fprintln(w, "NAME\tTASK\tSTATE\tMB\tPICTURE\tVALUES\tANSWER\tLICENCE\tSHA-256")
		for _, m := range models {
			megabytes, licence := "", "as this project"
			if !m.Shipped {
				megabytes, licence = fmt.Sprintf("%.1f", float64(m.Size)/1e6), m.Licence
			}
			fmt.Fprintln(w, strings.Join([]string{m.Name, string(m.Task), modelState(m), megabytes, m.Fit, m.Normalisation, m.Output, licence, m.SHA256}, "\t"))
		}
	})
}

func modelState(m app.Model) string {
	state := "-"
	switch {
	case m.Shipped:
		state = "shipped"
	case m.Own:
		state = "own export"
	case m.Installed:
		state = "installed"
	}
	if m.InUse {
		state += ", in use"
	}
	return state
}

type modelsPullCmd struct {
	app.ModelsFolder
	Name   string `arg:"" help:"Name of the model, as in \"pictor models list\"."`
	URL    string `name:"url" placeholder:"URL" help:"Take it from a mirror. The checksum stays what it is."`
	SHA256 string `name:"sha256" placeholder:"HEX" help:"Take another export, with this checksum, on your word."`
}

// Run downloads the model.
func (c *modelsPullCmd) Run(ctx context.Context, out *output) error {
	progress := newDownloadBar(out.progress, c.Name)
	pulled, err := app.PullModel(ctx, c.ModelsFolder, c.Name, models.Source{URL: c.URL, SHA256: c.SHA256, Progress: progress.update})
	progress.clear()
	if err != nil {
		return err
	}
	return out.print(pulled, func(w io.Writer) {
		if pulled.Pulled {
			fmt.Fprintf(w, "%s is in %s\n", pulled.Name, pulled.Path)
		} else {
			fmt.Fprintf(w, "%s was in %s already\n", pulled.Name, pulled.Path)
		}
	})
}

type modelsVerifyCmd struct{ app.ModelsFolder }

// Run prints what it found of each model.
func (c *modelsVerifyCmd) Run(out *output) error {
	found, intact := app.VerifyModels(c.ModelsFolder)
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
