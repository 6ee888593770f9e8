package main

import (
	"bytes"
	"fmt"

	"github.com/go-faster/yaml"
	"github.com/ogen-go/ogen"
	"github.com/ogen-go/ogen/gen"
)

// Generate writes the files of package api.
func Generate(config, document []byte, files gen.FileSystem) error {
	var options gen.Options
	d := yaml.NewDecoder(bytes.NewReader(config))
	d.KnownFields(true)
	if err := d.Decode(&options); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	view, err := View(document)
	if err != nil {
		return fmt.Errorf("simplify the document: %w", err)
	}
	spec, err := ogen.Parse(view)
	if err != nil {
		return fmt.Errorf("read the view: %w", err)
	}
	g, err := gen.NewGenerator(spec, options)
	if err != nil {
		return fmt.Errorf("plan the code: %w", err)
	}
	if err := g.WriteSource(files, "api"); err != nil {
		return fmt.Errorf("write the code: %w", err)
	}
	return nil
}
