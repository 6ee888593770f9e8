//go:build unix && !linux

package cluster

import "syscall"

// dieWithParent has no counterpart here: a server that is left behind is
// stopped by the next Start.
func dieWithParent(*syscall.SysProcAttr) {}

func passSealedFolders(*syscall.SysProcAttr) {}
