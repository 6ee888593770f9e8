package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pictor/internal/app"
)

// patience bounds every wait; nothing waits that long unless it fails.
const patience = 3 * time.Minute

// The test binary is pictor itself when this is set: the tests start real
// processes without building another binary.
const actAsPictor = "ACT_AS_PICTOR"

func TestMain(m *testing.M) {
	if os.Getenv(actAsPictor) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// process is a running pictor.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *pipe
	stderr *pipe
	exited chan struct{}
}

// start runs pictor with a home of its own, so that it neither sees nor leaves
// anything of this user.
func start(t *testing.T, home string, args ...string) *process {
	t.Helper()
	p := prepare(t, home, args...)
	p.run()
	return p
}

func prepare(t *testing.T, home string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(self, args...), stdout: new(pipe), stderr: new(pipe), exited: make(chan struct{})}
	p.cmd.Dir = home
	p.cmd.Env = append(cleanEnvironment(), actAsPictor+"=1", "XDG_STATE_HOME="+home)
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	return p
}

func (p *process) run() {
	p.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait()
	}()
	p.t.Cleanup(func() {
		p.kill()
		if p.t.Failed() {
			p.t.Logf("pictor %s wrote:\n%s", strings.Join(p.cmd.Args[1:], " "), p.stderr.bytes())
		}
	})
}

func cleanEnvironment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PICTOR_") || strings.HasPrefix(v, "PICTOR_ORT_LIB=") {
			env = append(env, v)
		}
	}
	return env
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// interrupt is Ctrl-C; it returns the exit code.
func (p *process) interrupt() int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		p.t.Fatal(err)
	}
	return p.wait()
}

func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.t.Fatal("the process does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// dev runs a dev stack until it is ready.
func dev(t *testing.T, data string, args ...string) (*process, app.DevInfo) {
	t.Helper()
	p := start(t, filepath.Dir(data), append([]string{"dev", "--data", data, "--json"}, args...)...)
	return p, p.ready()
}

// ready waits for the document of a dev stack, which it prints when it is.
func (p *process) ready() (info app.DevInfo) {
	p.t.Helper()
	until(p.t, p, "the stack is ready", func() bool { return json.Unmarshal(p.stdout.bytes(), &info) == nil })
	return info
}

// until waits for what no event tells, and fails early when the process ends.
func until(t *testing.T, p *process, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !done() {
		select {
		case <-tick.C:
		case <-p.exited:
			t.Fatalf("pictor ended with %d before %s", p.cmd.ProcessState.ExitCode(), what)
		case <-ctx.Done():
			t.Fatalf("in vain waited until %s", what)
		}
	}
}

// ask runs a command to its end and returns its exit code and its output.
func ask(t *testing.T, home string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	p := start(t, home, args...)
	code = p.wait()
	return code, string(p.stdout.bytes()), string(p.stderr.bytes())
}

// pipe keeps what a process writes.
type pipe struct {
	mu  sync.Mutex
	all []byte
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, b...)
	return len(b), nil
}

func (p *pipe) bytes() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.all)
}

// document reads the one JSON document of a command, and refuses anything else
// on its stdout.
func document[T any](t *testing.T, stdout string) T {
	t.Helper()
	var v T
	d := json.NewDecoder(strings.NewReader(stdout))
	if err := d.Decode(&v); err != nil {
		t.Fatalf("no JSON document in %q: %v", stdout, err)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Fatalf("more than one document in %q", stdout)
	}
	return v
}
