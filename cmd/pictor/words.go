package main

import "time"

// moment writes a time for people.
func moment(t time.Time) string { return t.Local().Format(time.DateTime) }

// yes writes a flag for people.
func yes(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}
