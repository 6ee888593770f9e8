package chaos_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pictor/internal/apikey"
	"pictor/internal/point"
	"pictor/internal/postgres"
)

// times are what a test must know of the program's clocks, to tell slow from
// stuck. They belong to the -clocks flag.
type times struct {
	lease   time.Duration // a claim without a heartbeat
	ackWait time.Duration // a message without a sign of life
	orphan  time.Duration // a job that was never published
	lost    time.Duration // a job whose message may be gone
	stuck   time.Duration // PICTOR_STUCK_AFTER; not under a lease with its redelivery
}

func theTimes() times {
	if *clocks == "shipped" {
		return times{lease: 15 * time.Second, ackWait: 20 * time.Second, orphan: 15 * time.Second, lost: 30 * time.Second, stuck: 2 * time.Minute}
	}
	return times{lease: 3 * time.Second, ackWait: 4 * time.Second, orphan: 4 * time.Second, lost: 6 * time.Second, stuck: 25 * time.Second}
}

// size is how much of the program a stack runs.
type size struct {
	serves, workers int
	slots           int           // PICTOR_WORKERS
	queue           int           // NATS servers; 0: one
	ownCluster      bool          // a Postgres that may be killed
	settings        string        // of the own cluster: name=value, separated by commas
	stuck           time.Duration // PICTOR_STUCK_AFTER; 0: that of the clocks
}

// stack is the program as it is run for real: processes, with a database and a
// queue. Each process reaches both through proxies of its own.
type stack struct {
	times
	dir    string
	server *database
	sql    *sql.DB // straight to the database, past the proxies
	db     *postgres.DB
	host   *loopback
	queue  []*natsServer
	blobs  string // folder of the store
	nats   string // folder of NATS' store

	// Whether the stores are on small disks of their own.
	smallStore, smallQueue bool

	serves  []*node
	workers []*node
}

// node is one process of the program.
type node struct {
	*process
	base     string // of its API
	ops      string
	database *postgresProxy
	queue    *pipe // nil where the queue has more than one server
}

func newStack(t testing.TB, s size) *stack {
	t.Helper()
	dir := makeFolder(t)
	k := &stack{times: theTimes(), dir: dir, host: newLoopback(), blobs: filepath.Join(dir, "blobs"), nats: filepath.Join(dir, "nats")}
	if s.stuck != 0 {
		k.stuck = s.stuck
	}
	program := buildProgram(t)
	k.server = openDatabase(t, dir, s)
	t.Cleanup(func() {
		if t.Failed() {
			k.tell(t)
		}
		if *keep { // the original may be on a disk that goes
			_ = os.WriteFile(filepath.Join(dir, "postgres.log"), []byte(k.server.log()), 0o600)
		}
	})
	k.sql = k.server.sql
	k.run(t, program, "migrate", "up")

	var err error
	if k.db, err = postgres.Open(t.Context(), k.server.url, postgres.Config{Name: "chaos", MaxConns: 8}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.db.Close() })

	k.smallStore = mountSmall(t, k.blobs, 256<<20)
	if s.queue <= 1 {
		k.smallQueue = mountSmall(t, k.nats, 64<<20)
	}
	k.queue = newQueue(t, dir, k.nats, k.host, s.queue)
	for _, n := range k.queue {
		if err := n.start(); err != nil {
			t.Fatal(err)
		}
	}
	k.awaitQueue(t)
	for i := range s.serves {
		k.serves = append(k.serves, k.newNode(t, program, "serve", i, 0))
	}
	for i := range s.workers {
		k.workers = append(k.workers, k.newNode(t, program, "worker", i, s.slots))
	}
	return k
}

// newNode prepares a process and does not start it.
func (k *stack) newNode(t testing.TB, program, command string, i, slots int) *node {
	t.Helper()
	n := &node{
		database: newPostgresProxy(t, k.server.dial),
		ops:      k.host.address(t),
	}
	queueURL := k.natsURL()
	if len(k.queue) == 1 {
		n.queue = newPipe(t, k.queue[0].options.Listen)
		queueURL = "nats://" + n.queue.addr()
	}
	listen, results := k.host.address(t), k.host.address(t)
	n.base = "http://" + listen + "/api/v1"
	temp := filepath.Join(k.dir, fmt.Sprintf("%s-%d-tmp", command, i+1))
	if err := os.Mkdir(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	set := map[string]string{
		"PICTOR_DATABASE_URL":   k.server.through(n.database.addr()),
		"PICTOR_NATS_URL":       queueURL,
		"PICTOR_BLOB_URL":       (&url.URL{Scheme: "file", Path: k.blobs + "/store"}).String(),
		"PICTOR_LISTEN":         listen,
		"PICTOR_RESULTS_LISTEN": results,
		"PICTOR_OPS_LISTEN":     n.ops,
		"PICTOR_STUCK_AFTER":    k.stuck.String(),
		"PICTOR_WORKERS":        strconv.Itoa(slots),
		"TMPDIR":                temp,
	}
	n.process = newProcess(t, k.dir, fmt.Sprintf("%s-%d", command, i+1), func() *exec.Cmd {
		cmd := exec.Command(program, command)
		for _, v := range os.Environ() {
			if !strings.HasPrefix(v, "PICTOR_") || strings.HasPrefix(v, "PICTOR_ORT_LIB=") || strings.HasPrefix(v, "PICTOR_ENGINE=") {
				cmd.Env = append(cmd.Env, v)
			}
		}
		for name, value := range set {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		return cmd
	})
	return n
}

// begin starts nodes and returns when they are of use.
func (k *stack) begin(t testing.TB, nodes ...*node) {
	t.Helper()
	for _, n := range nodes {
		if err := n.start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range nodes {
		if !n.ready(t.Context(), 3*time.Minute) {
			t.Fatalf("%s does not get ready:\n%s", n.name, n.last(20))
		}
	}
}

// ready waits until the process says that it should be given work.
func (n *node) ready(ctx context.Context, atMost time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.ops+"/readyz", nil)
		if err != nil {
			return false
		}
		if response, err := http.DefaultClient.Do(q); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return true
			}
		}
		if !pause(ctx, 30*time.Millisecond) {
			return false
		}
	}
}

// run runs a command of the program to its end.
func (k *stack) run(t testing.TB, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "PICTOR_DATABASE_URL="+k.server.url)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("pictor %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// doctor asks `pictor doctor`, in the place of an API process.
func (k *stack) doctor(t testing.TB) {
	t.Helper()
	cmd := k.serves[0].make()
	cmd.Args = []string{cmd.Path, "doctor"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("pictor doctor: %v\n%s", err, out)
	}
}

// open makes an account with a key.
func (k *stack) open(t testing.TB, name string, balance point.Amount) *account {
	t.Helper()
	a, err := k.db.CreateAccount(t.Context(), name, balance, false)
	if err != nil {
		t.Fatal(err)
	}
	key := apikey.New("pictor")
	if _, err := k.db.CreateKey(t.Context(), a.ID, key, "chaos"); err != nil {
		t.Fatal(err)
	}
	return &account{id: a.ID, name: name, key: string(key), opening: balance}
}

func (k *stack) bases() []string {
	var all []string
	for _, n := range k.serves {
		all = append(all, n.base)
	}
	return all
}

func (k *stack) nodes() []*node { return append(append([]*node(nil), k.serves...), k.workers...) }

// said counts what the nodes' logs say, over all their lives.
func (k *stack) said(text string) int {
	n := 0
	for _, node := range k.nodes() {
		n += len(node.lines(text))
	}
	return n
}

// tell puts the end of every log into the test's output.
func (k *stack) tell(t testing.TB) {
	for _, n := range k.nodes() {
		t.Logf("%s said last:\n%s", n.name, n.last(12))
	}
	t.Logf("Postgres said last of %s:\n%s", k.server.name, k.server.last(12))
}

// makeFolder makes a folder that Postgres' user may pass through, and that is
// gone afterwards.
func makeFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pictor-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if *keep {
		t.Logf("logs and stores are kept in %s", dir)
		return dir
	}
	watch.tell(toldMade, dir)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err == nil {
			watch.tell(toldRemoved, dir)
		}
	})
	return dir
}

// mountSmall makes a folder, on a small file system of its own where mounting
// is allowed: such a disk can be filled without harm to others.
func mountSmall(t testing.TB, path string, bytes int) (small bool) {
	t.Helper()
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", bytes)); err != nil {
		return false
	}
	watch.tell(toldMounted, path)
	t.Cleanup(func() {
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err == nil {
			watch.tell(toldUnmounted, path)
		}
	})
	return true
}

// loopback is a host of a stack's own. No connection begins there, so that the
// address of a process that died is still free when it comes back.
type loopback struct {
	ip   string
	port int // the last one that was given out
}

func newLoopback() *loopback {
	return &loopback{ip: fmt.Sprintf("127.%d.%d.%d", 1+rand.N(254), rand.N(256), 1+rand.N(254)), port: 10_000}
}

// address is one that nobody listens on, each time another one.
func (l *loopback) address(t testing.TB) string {
	t.Helper()
	for l.port++; ; l.port++ {
		a := net.JoinHostPort(l.ip, strconv.Itoa(l.port))
		listener, err := net.Listen("tcp", a)
		if err == nil {
			_ = listener.Close()
			return a
		}
		if !errors.Is(err, syscall.EADDRINUSE) { // by somebody who listens on all hosts
			t.Fatal(err)
		}
	}
}
