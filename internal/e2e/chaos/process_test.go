package chaos_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a program that can be killed, stopped and started again with the
// same arguments. Its output of all lives is one file.
type process struct {
	name string
	log  string // path of its output
	make func() *exec.Cmd

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
}

func newProcess(t testing.TB, dir, name string, command func() *exec.Cmd) *process {
	t.Helper()
	p := &process{name: name, log: filepath.Join(dir, name+".log"), make: command}
	t.Cleanup(p.kill)
	return p
}

// start begins a life. It returns at once; whether the program is of use yet is
// for the caller to find out.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return fmt.Errorf("%s runs already", p.name)
	}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := p.make()
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	watch.tell(toldStarted, cmd.Process.Pid)
	p.cmd, p.exited = cmd, make(chan struct{})
	go func(exited chan struct{}) {
		_ = cmd.Wait()
		watch.tell(toldEnded, cmd.Process.Pid)
		p.mu.Lock()
		p.cmd = nil
		p.mu.Unlock()
		close(exited)
	}(p.exited)
	return nil
}

// signal sends a signal to the running process, if there is one.
func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(s)
	}
}

// kill is kill -9, and returns when the process is gone.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended()
}

// terminate asks the process to stop and returns whether it did in time.
func (p *process) terminate(patience time.Duration) bool {
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended():
		return true
	case <-time.After(patience):
		p.kill()
		return false
	}
}

// ended is closed when the present life is over.
func (p *process) ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		over := make(chan struct{})
		close(over)
		return over
	}
	return p.exited
}

// lines are those lines of the output that hold a text.
func (p *process) lines(text string) []string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return nil
	}
	var found []string
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// last is the end of the output.
func (p *process) last(lines int) string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
