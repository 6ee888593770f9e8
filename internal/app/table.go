package app

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

//go:generate go run ./configtable ../../README.md

// The table stands between these lines of the README.
const (
	tableBegin = "<!-- config:begin -->\n"
	tableEnd   = "<!-- config:end -->\n"
)

// Table is the whole configuration as a table in Markdown.
func Table() (string, error) {
	k, err := kong.New(&Config{}, kong.Name("pictor"), kong.NoDefaultHelp())
	if err != nil {
		return "", fmt.Errorf("read the fields of the configuration: %w", err)
	}
	var b strings.Builder
	b.WriteString("| Variable | Flag | Default | Meaning |\n|---|---|---|---|\n")
	for _, f := range k.Model.Flags {
		// A default that the code gives stands in the help as a placeholder; one
		// of capitals alone is no value but says what kind is wanted.
		standard := f.Default
		if !f.HasDefault && strings.Trim(f.PlaceHolder, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
			standard = f.PlaceHolder
		}
		if standard != "" {
			standard = "`" + standard + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `--%s` | %s | %s |\n", f.Envs[0], f.Name, standard, f.Help)
	}
	return b.String(), nil
}

// InsertTable puts the table into a text at its place.
func InsertTable(text string) (string, error) {
	before, rest, ok := strings.Cut(text, tableBegin)
	_, after, closed := strings.Cut(rest, tableEnd)
	if !ok || !closed {
		return "", fmt.Errorf("the text has no place for the table: want the lines %q and %q", strings.TrimSpace(tableBegin), strings.TrimSpace(tableEnd))
	}
	table, err := Table()
	if err != nil {
		return "", err
	}
	return before + tableBegin + table + tableEnd + after, nil
}
