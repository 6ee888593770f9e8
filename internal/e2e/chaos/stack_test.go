package chaos_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/lib/pq"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pictor/internal/apikey"
	"pictor/internal/bus"
	"pictor/internal/cluster"
	"pictor/internal/job"
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
	ownCluster      bool          // a Postgres that may be killed
	settings        string        // of the own cluster: name=value, separated by commas
	stuck           time.Duration // PICTOR_STUCK_AFTER; 0: that of the clocks
}

// stack is the program as it is run for real: processes, with a database and a
// queue. Each process reaches both through proxies of its own.
type stack struct {
	times
	dir     string
	server  *database
	sql     *sql.DB // straight to the database, past the proxies
	db      *postgres.DB
	queue   *process
	queueAt string // host:port of NATS itself
	blobs   string // folder of the store
	nats    string // folder of NATS' store

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
	queue    *pipe
}

func newStack(t testing.TB, s size) *stack {
	t.Helper()
	dir := makeFolder(t)
	k := &stack{times: theTimes(), dir: dir, blobs: filepath.Join(dir, "blobs"), nats: filepath.Join(dir, "nats")}
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
	k.smallQueue = mountSmall(t, k.nats, 64<<20)
	k.queueAt = freeAddress(t)
	k.queue = newProcess(t, dir, "nats", func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), roleVariable+"="+roleNATS, natsDir+"="+k.nats, natsAddress+"="+k.queueAt)
		return cmd
	})
	if err := k.queue.start(); err != nil {
		t.Fatal(err)
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
		queue:    newPipe(t, func() string { return k.queueAt }),
		ops:      freeAddress(t),
	}
	listen, results := freeAddress(t), freeAddress(t)
	n.base = "http://" + listen + "/api/v1"
	temp := filepath.Join(k.dir, fmt.Sprintf("%s-%d-tmp", command, i+1))
	if err := os.Mkdir(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	set := map[string]string{
		"PICTOR_DATABASE_URL":   k.server.through(n.database.addr()),
		"PICTOR_NATS_URL":       "nats://" + n.queue.addr(),
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
		if !n.ready(t.Context(), time.Minute) {
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

// awaitQueue returns when NATS answers.
func (k *stack) awaitQueue(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		conn, err := nats.Connect("nats://"+k.queueAt, nats.Timeout(time.Second))
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("NATS does not answer: %v\n%s", err, k.queue.last(20))
		}
		pause(t.Context(), 20*time.Millisecond)
	}
}

// messagesLeft describes the messages that workers are given again and again, when
// each of them had the time to be delivered once more.
//
// A message that no worker will be given is not among them: NATS leaves some
// behind when its store was damaged and the consumer remembers more than the
// stream. Their jobs were published again.
func (k *stack) messagesLeft(t testing.TB) (left []string) {
	t.Helper()
	conn, err := nats.Connect("nats://"+k.queueAt, nats.Timeout(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(4 * (k.lease + k.ackWait)); ; {
		left = nil
		for _, task := range job.Tasks() {
			c, err := js.Consumer(t.Context(), "JOBS", "run-"+string(task))
			if err != nil {
				left = append(left, err.Error())
				continue
			}
			if i := c.CachedInfo(); i.NumPending > 0 || i.NumAckPending > 0 {
				left = append(left, fmt.Sprintf("%s: %d to come, %d given out, %d of them again; delivered to %v, acknowledged to %v",
					i.Name, i.NumPending, i.NumAckPending, i.NumRedelivered, i.Delivered, i.AckFloor))
			}
		}
		s, err := js.Stream(t.Context(), "JOBS")
		if err == nil && len(left) == 0 {
			if n := s.CachedInfo().State.Msgs; n > 0 {
				t.Logf("%d messages lie in the stream and are nobody's", n)
			}
			return nil
		}
		if time.Now().After(deadline) {
			if err == nil {
				i := s.CachedInfo().State
				for n := i.FirstSeq; n <= i.LastSeq && len(left) < 20; n++ {
					if m, err := s.GetMsg(t.Context(), n); err == nil {
						left = append(left, fmt.Sprintf("%d %s %v %q", n, m.Subject, m.Header, m.Data))
					}
				}
			}
			return left
		}
		pause(t.Context(), 100*time.Millisecond)
	}
}

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

// database is a Postgres cluster and one database in it.
type database struct {
	dir    string
	name   string
	url    string
	socket string
	small  bool // on a small disk of its own
	sql    *sql.DB

	mu      sync.Mutex
	cluster *cluster.Cluster
	pid     int
}

// openDatabase makes a database of the stack's own, on a cluster of its own or
// on the one that the tests share.
func openDatabase(t testing.TB, dir string, s size) *database {
	t.Helper()
	d := &database{dir: filepath.Join(dir, "postgres")}
	if s.ownCluster {
		if d.small = mountSmall(t, d.dir, 768<<20); d.small {
			// Others may pass through, to the data that is its user's alone.
			if err := os.Chmod(d.dir, 0o711); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.stop)
	} else {
		shared, err := sharedDatabase()
		if err != nil {
			t.Fatal(err)
		}
		d.dir, d.cluster = shared.dir, shared.cluster
	}
	name := fmt.Sprintf("chaos_%d", time.Now().UnixNano())
	admin, err := sql.Open("postgres", d.cluster.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	statements := []string{
		"alter system set log_line_prefix = '%m [%p] (%d) '", // the log says which database
		"create database " + name,
	}
	for setting := range strings.SplitSeq(s.settings, ",") {
		if variable, value, ok := strings.Cut(setting, "="); ok && s.ownCluster {
			statements = append(statements, "alter system set "+variable+" = '"+value+"'")
		}
	}
	for _, statement := range append(statements, "select pg_reload_conf()") {
		if _, err := admin.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	d.name, d.url = name, d.cluster.URL(name)
	u, err := url.Parse(d.url)
	if err != nil {
		t.Fatal(err)
	}
	d.socket = filepath.Join(u.Query().Get("host"), ".s.PGSQL."+u.Query().Get("port"))
	if d.sql, err = sql.Open("postgres", d.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.sql.Close() })
	return d
}

// marked is what stands in every line of the log about this database.
func (d *database) marked() string { return "(" + d.name + ")" }

// sharedDatabase starts the cluster that tests share which leave it alone.
var sharedDatabase = sync.OnceValues(func() (*database, error) {
	dir, err := os.MkdirTemp("", "pictor-chaos-")
	if err != nil {
		return nil, err
	}
	watch.tell(toldMade, dir)
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	d := &database{dir: filepath.Join(dir, "postgres")}
	return d, d.start(context.Background())
})

func (d *database) start(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, err := cluster.Start(ctx, d.dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(d.dir, "data", "postmaster.pid"))
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(b), "\n")
	if d.pid, err = strconv.Atoi(first); err != nil {
		return err
	}
	watch.tell(toldPostgres, d.pid)
	d.cluster = c
	return nil
}

// crash stops the server as a power cut would, as far as a process can: nothing
// is written any more, and the next start recovers.
func (d *database) crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cluster == nil {
		return
	}
	_ = syscall.Kill(d.pid, syscall.SIGQUIT)
	<-d.cluster.Done()
	_ = d.cluster.Stop(context.Background()) // lets go of the folder
	watch.tell(toldEnded, d.pid)
	d.cluster = nil
}

func (d *database) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cluster == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = d.cluster.Stop(ctx)
	watch.tell(toldEnded, d.pid)
	d.cluster = nil
}

// running says whether the server's first process lives.
func (d *database) running() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cluster == nil {
		return false
	}
	select {
	case <-d.cluster.Done():
		return false
	default:
		return true
	}
}

func (d *database) dial() (net.Conn, error) { return net.Dial("unix", d.socket) }

// through is the database's URL by way of a proxy.
func (d *database) through(address string) string {
	u, _ := url.Parse(d.url) // it was made by url.URL
	return (&url.URL{Scheme: "postgres", User: u.User, Host: address, Path: u.Path, RawQuery: "sslmode=disable"}).String()
}

func (d *database) log() string {
	b, err := os.ReadFile(filepath.Join(d.dir, "postgres.log"))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (d *database) last(lines int) string {
	all := strings.Split(strings.TrimSpace(d.log()), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// The NATS process is this binary again, with an embedded server: it can be
// killed without anything else dying.
const (
	natsDir     = "PICTOR_CHAOS_NATS_DIR"
	natsAddress = "PICTOR_CHAOS_NATS_ADDRESS"
)

func serveNATS() {
	_, port, err := net.SplitHostPort(os.Getenv(natsAddress))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	number, err := strconv.Atoi(port)
	if err == nil {
		var server *bus.Server
		if server, err = bus.StartServer(os.Getenv(natsDir), number, slog.New(slog.NewTextHandler(os.Stderr, nil))); err == nil {
			ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
			defer cancel()
			<-ctx.Done()
			server.Stop()
			return
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
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

// freeAddress is a loopback address that nobody listens on now.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
