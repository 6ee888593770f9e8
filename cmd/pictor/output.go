package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// output prints what a command found: for people, or as one JSON document.
type output struct {
	json     bool
	w        io.Writer
	progress io.Writer
}

// print writes the document, or what people writes for people. Columns are
// separated by tabs.
func (o *output) print(document any, people func(w io.Writer)) error {
	if o.json {
		e := json.NewEncoder(o.w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		if err := e.Encode(document); err != nil {
			return fmt.Errorf("write the document: %w", err)
		}
		return nil
	}
	t := tabwriter.NewWriter(o.w, 0, 8, 2, ' ', 0)
	people(t)
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// csv writes a header and the rows that rows writes.
func (o *output) csv(header []string, rows func(*csv.Writer) error) error {
	w := csv.NewWriter(o.w)
	if err := w.Write(header); err != nil {
		return fmt.Errorf("write the header: %w", err)
	}
	if err := rows(w); err != nil {
		return err
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return fmt.Errorf("write the rows: %w", err)
	}
	return nil
}
