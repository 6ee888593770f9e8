package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopOrphan ends a server that an earlier process left behind, or what is left
// of one, and removes the pid file of one that is gone: its number may belong
// to an innocent process by now, and Postgres would refuse to start beside it.
//
// The caller holds the folder's lock, so no living process of ours wants it.
func stopOrphan(ctx context.Context, data string, log *slog.Logger) error {
	ends := []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL}
	for _, end := range ends {
		pids := serversOf(data)
		if len(pids) == 0 {
			break
		}
		// Its first process ends the others in order; without it, each is told.
		if first, _ := readPidFile(data); end != syscall.SIGKILL && slices.Contains(pids, first) {
			pids = []int{first}
		}
		log.Info("stopping a Postgres that was left behind", "pids", pids, "signal", end)
		for _, pid := range pids {
			if err := syscall.Kill(pid, end); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("stop the Postgres with process id %d that was left behind: %w", pid, err)
			}
		}
		if err := waitGone(ctx, data); err != nil {
			return err
		}
	}
	if pids := serversOf(data); len(pids) > 0 {
		return fmt.Errorf("the Postgres that was left behind (process ids %v) does not end", pids)
	}
	if err := os.Remove(filepath.Join(data, "postmaster.pid")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the pid file of a dead Postgres: %w", err)
	}
	return nil
}

func waitGone(ctx context.Context, data string) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	end := time.After(forceTime)
	for len(serversOf(data)) > 0 {
		select {
		case <-tick.C:
		case <-end:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// serversOf lists the processes of a server on data. Every one of them has the
// folder as its working directory. Without /proc only the first is known.
func serversOf(data string) []int {
	want, err := os.Stat(data)
	if err != nil {
		return nil
	}
	if runtime.GOOS != "linux" {
		if pid, _ := readPidFile(data); pid > 0 && runs(pid, data) {
			return []int{pid}
		}
		return nil
	}
	var pids []int
	all, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, cwd := range all {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(cwd)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		name, err := os.ReadFile(filepath.Join(filepath.Dir(cwd), "comm"))
		if err != nil || !strings.HasPrefix(string(name), "postgres") {
			continue
		}
		if has, err := os.Stat(cwd); err == nil && os.SameFile(want, has) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// runs says whether the process was started as a server of data.
func runs(pid int, data string) bool {
	out, err := exec.Command("ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.Contains(string(out), data)
}

// readPidFile reads the server's process id and what it says of itself:
// "starting", "ready", "stopping". 0 when there is no such file.
func readPidFile(data string) (pid int, status string) {
	b, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return 0, ""
	}
	lines := strings.Split(string(b), "\n")
	pid, _ = strconv.Atoi(strings.TrimSpace(lines[0]))
	if len(lines) > 7 {
		status = strings.TrimSpace(lines[7])
	}
	return pid, status
}
