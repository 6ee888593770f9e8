package chaos_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// guardian is a process that outlives this one by a moment. It is told of
// everything that was started, mounted and made, over a pipe; when the pipe
// ends, because the tests are over or were themselves killed or timed out, it
// takes all of it away.
type guardian struct {
	mu   sync.Mutex
	pipe io.WriteCloser
	cmd  *exec.Cmd
}

// What the guardian is told, one a line.
const (
	toldStarted   = "started"   // + pid
	toldPostgres  = "postgres"  // + pid of a postmaster, which is told to end its children first
	toldEnded     = "ended"     // + pid, waited for: it may be another process soon
	toldMounted   = "mounted"   // + path
	toldUnmounted = "unmounted" // + path
	toldMade      = "made"      // + path of a folder
	toldRemoved   = "removed"   // + path
)

// startGuardian starts this test binary again as a guardian, in a session of
// its own, so that a Ctrl-C does not end it too early.
func startGuardian() (*guardian, error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+roleGuardian)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the guardian: %w", err)
	}
	return &guardian{pipe: pipe, cmd: cmd}, nil
}

func (g *guardian) tell(what string, about any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, _ = fmt.Fprintf(g.pipe, "%s %v\n", what, about)
}

// end has the guardian take away what is left, and returns when it has.
func (g *guardian) end() {
	_ = g.pipe.Close()
	_ = g.cmd.Wait()
}

// guard is the guardian's own life.
func guard(told io.Reader) {
	processes := make(map[int]syscall.Signal)
	var mounts, folders []string
	lines := bufio.NewScanner(told)
	for lines.Scan() {
		what, about, _ := strings.Cut(lines.Text(), " ")
		pid, _ := strconv.Atoi(about)
		switch what {
		case toldStarted:
			processes[pid] = syscall.SIGKILL
		case toldPostgres:
			processes[pid] = syscall.SIGQUIT
		case toldEnded:
			delete(processes, pid)
		case toldMounted:
			mounts = append(mounts, about)
		case toldUnmounted:
			mounts = without(mounts, about)
		case toldMade:
			folders = append(folders, about)
		case toldRemoved:
			folders = without(folders, about)
		}
	}
	for pid, signal := range processes {
		_ = syscall.Kill(pid, syscall.SIGCONT)
		_ = syscall.Kill(pid, signal)
	}
	for range 50 { // a postmaster ends its children before itself
		alive := false
		for pid, signal := range processes {
			alive = alive || signal == syscall.SIGQUIT && syscall.Kill(pid, 0) == nil
		}
		if !alive {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	for pid := range processes {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, path := range mounts {
		_ = syscall.Unmount(path, syscall.MNT_DETACH)
	}
	for _, path := range folders {
		_ = os.RemoveAll(path)
	}
}

func without(list []string, gone string) []string {
	kept := list[:0]
	for _, s := range list {
		if s != gone {
			kept = append(kept, s)
		}
	}
	return kept
}
