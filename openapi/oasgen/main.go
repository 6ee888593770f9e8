// Command oasgen generates the package api from the contract. ogen does the
// work; oasgen shows it a simpler view of the document (view.go), because the
// public document says more than ogen can express well.
//
//	oasgen OGEN.YML OPENAPI.JSON DIRECTORY
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/ogen-go/ogen/gen/genfs"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: oasgen OGEN.YML OPENAPI.JSON DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "oasgen:", err)
		os.Exit(1)
	}
}

func run(configFile, documentFile, dir string) error {
	config, err := os.ReadFile(configFile)
	if err != nil {
		return err
	}
	document, err := os.ReadFile(documentFile)
	if err != nil {
		return err
	}
	stale, err := filepath.Glob(filepath.Join(dir, "oas_*_gen.go"))
	if err != nil {
		return err
	}
	for _, name := range stale {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return Generate(config, document, genfs.FormattedSource{Root: dir})
}
