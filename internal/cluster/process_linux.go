package cluster

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent has the kernel stop the server (a fast shutdown) when the
// thread that started it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }

// passSealedFolders lets the server enter folders that are closed to its user,
// such as /root: with the data in there, somebody who is root said so. The
// capability to search folders is enough; some containers only have the one
// that overrides every permission.
func passSealedFolders(attr *syscall.SysProcAttr) {
	const overrideAll, search = 1, 2
	attr.AmbientCaps = []uintptr{search}
	if !capable(search) {
		attr.AmbientCaps = []uintptr{overrideAll}
	}
}

// capable says whether this process may hand a capability on.
func capable(number uint) bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(status), "CapPrm:")
	line, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return err == nil && set&(1<<number) != 0
}
