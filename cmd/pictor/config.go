package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"pictor/internal/app"
)

type configCmd struct {
	Data string `placeholder:"DIR" type:"path" help:"Folder of a running dev stack whose stores to show."`
	app.Settings
}

// Help tells what the exit code means.
func (configCmd) Help() string {
	return "Takes the environment and the flags of \"serve\" and \"worker\", and exits with 2 when they would be refused. Secrets are not shown."
}

// Run prints the settings, then every mistake in them.
func (c *configCmd) Run(k *kong.Context, out *output) error {
	settings, wrong := c.Settings.Effective(k, c.Data)
	mistakes := []string{}
	if wrong != nil {
		mistakes = strings.Split(wrong.Error(), "\n")
	}
	unknown := app.UnknownVariables(k.Kong)
	document := struct {
		Settings []app.Setting `json:"settings"`
		Mistakes []string      `json:"mistakes"`
		Unknown  []string      `json:"unknown"`
	}{settings, mistakes, unknown}
	err := out.print(document, func(w io.Writer) {
		for _, s := range settings {
			fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.From, s.Value)
		}
		for _, name := range unknown {
			fmt.Fprintf(w, "%s\tno setting has this name\t\n", name)
		}
	})
	if err == nil && wrong != nil {
		err = &app.UsageError{Err: wrong}
	}
	return err
}
