package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds what a test waits for.
const patience = 2 * time.Minute

// program builds pictor once for all tests of this binary.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(programDir(), "pictor")
	if out, err := exec.Command("go", "build", "-tags", "disable_grpc_modules", "-o", path, "pictor/cmd/pictor").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// programDir is where the program is built; TestMain removes it.
func programDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("pictor-e2e-%d", os.Getpid()))
}

// process is `pictor serve` or `pictor worker` as it runs for real.
type process struct {
	cmd             *exec.Cmd
	command         string
	baseURL, opsURL string
	log             log // of stderr
	exited          chan struct{}
	ended           error // of Wait, once exited is closed
}

// run starts a process on the stack's stores and returns when it says where it
// is. more are further variables, NAME=value.
func (s *stack) run(t testing.TB, command string, more ...string) *process {
	t.Helper()
	path, err := program()
	must(t, err)
	p := &process{command: command, exited: make(chan struct{})}
	p.cmd = exec.Command(path, command, "--json")
	p.cmd.Env = append(os.Environ(),
		"PICTOR_DATABASE_URL="+s.stores.DatabaseURL, "PICTOR_NATS_URL="+s.stores.NATSURL, "PICTOR_BLOB_URL="+s.stores.BlobURL,
		"PICTOR_LISTEN=127.0.0.1:0", "PICTOR_RESULTS_LISTEN=127.0.0.1:0", "PICTOR_OPS_LISTEN=127.0.0.1:0",
		"PICTOR_LOG_LEVEL=warn", "TMPDIR="+t.TempDir())
	p.cmd.Env = append(p.cmd.Env, more...)
	p.cmd.Stderr = io.MultiWriter(t.Output(), &p.log)
	p.cmd.SysProcAttr = endWithParent()
	out, err := p.cmd.StdoutPipe()
	must(t, err)
	must(t, p.cmd.Start())
	t.Cleanup(p.kill)
	var where struct {
		BaseURL string `json:"base_url"`
		OpsURL  string `json:"ops_url"`
	}
	err = json.NewDecoder(out).Decode(&where)
	go func() {
		defer close(p.exited)
		p.ended = p.cmd.Wait()
	}()
	if err != nil {
		t.Fatalf("pictor %s did not start: %v", command, err)
	}
	p.baseURL, p.opsURL = where.BaseURL, where.OpsURL
	return p
}

// log is what a process logged so far.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write is io.Writer.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// metric is the value of a series at /metrics of the process, and 0 when it is
// not there.
func (p *process) metric(t testing.TB, series string) float64 {
	t.Helper()
	response, err := http.Get(p.opsURL + "/metrics")
	must(t, err)
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), series+" "); ok {
			number, err := strconv.ParseFloat(value, 64)
			must(t, err)
			return number
		}
	}
	return 0
}

// until looks again and again.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	over := time.After(patience)
	for !done() {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("in vain waited until %s", what)
		}
	}
}
