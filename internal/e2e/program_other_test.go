//go:build !linux

package e2e_test

import "syscall"

func endWithParent() *syscall.SysProcAttr { return nil }
