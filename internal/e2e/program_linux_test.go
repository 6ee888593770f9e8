package e2e_test

import "syscall"

// endWithParent has the kernel kill the process when this one is gone, however
// it ended: a test that times out runs no cleanup.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
