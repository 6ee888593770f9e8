package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

//go:generate go run -tags disable_grpc_modules ./configtable ../../README.md

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

// MetricsTable is everything that /metrics tells, as a table in Markdown.
func MetricsTable() string {
	serve, worker := newServeMetrics(nil).rows, newWorkerMetrics().rows
	var b strings.Builder
	b.WriteString("| Metric | Of | Kind | Meaning |\n|---|---|---|---|\n")
	for _, r := range serve {
		of := "`serve`"
		if slices.ContainsFunc(worker, r.is) {
			of = "both"
		}
		b.WriteString(r.row(of))
	}
	for _, r := range worker {
		if !slices.ContainsFunc(serve, r.is) {
			b.WriteString(r.row("`worker`"))
		}
	}
	return b.String()
}

// InsertTables puts the tables into a text, each at its place: between the
// lines <!-- name:begin --> and <!-- name:end -->.
func InsertTables(text string) (string, error) {
	config, err := Table()
	if err != nil {
		return "", err
	}
	for _, t := range []struct{ name, table string }{{"config", config}, {"metrics", MetricsTable()}, {"models", ModelsTable()}} {
		begin, end := "<!-- "+t.name+":begin -->\n", "<!-- "+t.name+":end -->\n"
		before, rest, ok := strings.Cut(text, begin)
		_, after, closed := strings.Cut(rest, end)
		if !ok || !closed {
			return "", fmt.Errorf("the text has no place for the table of %s: want the lines %q and %q", t.name, strings.TrimSpace(begin), strings.TrimSpace(end))
		}
		text = before + begin + t.table + end + after
	}
	return text, nil
}
