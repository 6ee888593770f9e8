// Package cputime measures the processor time of a test: other work on the
// machine does not count, so on a busy one it says more than a clock.
package cputime

import (
	"syscall"
	"testing"
	"time"
)

// Used is what this process has used so far, in the program and in the kernel.
func Used(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Of is what this process uses while f runs.
func Of(t testing.TB, f func()) time.Duration {
	t.Helper()
	from := Used(t)
	f()
	return Used(t) - from
}
