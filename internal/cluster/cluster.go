// Package cluster runs a private Postgres server for a laptop or a test: the
// server found on the machine, its data in a folder, reachable only through a
// unix socket in a folder that only its user may enter.
//
// A folder looks like this:
//
//	data/         the cluster; made beside it and renamed, so it is whole or absent
//	run/          the socket, unless the path is too long for one
//	lock          held by the process that runs the server
//	postgres.log  what the server says
//
// The server dies with the process that started it, also when that is killed:
// on Linux the kernel sees to it. Where it survives (another system, or one of
// its own processes outlived it), the next Start stops it before its own.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	superuser = "pictor"
	port      = "5432" // part of the socket's name; nothing listens on TCP

	startTime = 60 * time.Second // crash recovery included
	forceTime = 5 * time.Second  // between two ever ruder signals
	poll      = 5 * time.Millisecond
)

// Options change how the server runs.
type Options struct {
	// Unsafe trades durability for speed: no fsync. A crash of the machine, not
	// of a process, ruins the data. For tests.
	Unsafe bool

	MaxConnections int // default 200

	// Settings are more of the server's, as name=value. They come last, and
	// count. For tests.
	Settings []string
}

// Cluster is a running server.
type Cluster struct {
	dir     string // absolute
	sockets string
	log     *slog.Logger
	lock    *os.File

	process *os.Process
	exited  chan struct{} // closed when the server has ended

	stopping sync.Once
	stopped  error
}

// Start runs the server of the folder dir, which is made when absent. Only one
// process can run it at a time.
func Start(ctx context.Context, dir string, log *slog.Logger) (*Cluster, error) {
	return Options{}.Start(ctx, dir, log)
}

// Start is the function Start with these options.
func (o Options) Start(ctx context.Context, dir string, log *slog.Logger) (*Cluster, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("start Postgres: %w", err)
	}
	// Others may pass through, to data/ that is its user's alone.
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("start Postgres: %w", err)
	}
	c := &Cluster{dir: dir, log: log, exited: make(chan struct{})}
	if c.lock, err = lock(filepath.Join(dir, "lock")); err != nil {
		return nil, fmt.Errorf("start Postgres in %s: %w", dir, err)
	}
	if err := c.start(ctx, o); err != nil {
		c.unlock()
		return nil, fmt.Errorf("start Postgres in %s: %w", dir, err)
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, o Options) error {
	ctx, done := context.WithTimeout(ctx, startTime)
	defer done()
	who, err := findOwner(c.dir)
	if err != nil {
		return err
	}
	if err := stopOrphan(ctx, c.data(), c.log); err != nil {
		return err
	}
	bin, err := findBinaries(c.data())
	if err != nil {
		return err
	}
	if c.sockets, err = socketFolder(c.dir, who); err != nil {
		return err
	}
	out, err := openLog(filepath.Join(c.dir, "postgres.log"))
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := os.Stat(filepath.Join(c.data(), "PG_VERSION")); errors.Is(err, os.ErrNotExist) {
		if err := initialise(ctx, bin, c.data(), who, o, out); err != nil {
			return err
		}
	}
	if err := c.run(bin, o, who, out); err != nil {
		return err
	}
	if err := c.ready(ctx); err != nil {
		_ = c.process.Kill()
		<-c.exited
		return err
	}
	return nil
}

// run starts the server. The thread that forks waits for it as well: the
// kernel's death signal belongs to a thread, which must live as long as the
// server.
func (c *Cluster) run(bin string, o Options, who owner, out *os.File) error {
	if o.MaxConnections == 0 {
		o.MaxConnections = 200
	}
	settings := []string{
		"-D", c.data(), "-k", c.sockets, "-p", port,
		"-c", "listen_addresses=", "-c", "unix_socket_permissions=0700",
		"-c", "max_connections=" + strconv.Itoa(o.MaxConnections),
		"-c", "timezone=UTC", "-c", "log_timezone=UTC", "-c", "logging_collector=off", "-c", "jit=off",
		"-c", "log_checkpoints=off", "-c", "max_wal_size=256MB",
	}
	if o.Unsafe {
		settings = append(settings, "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
	}
	for _, s := range o.Settings {
		settings = append(settings, "-c", s)
	}
	cmd := exec.Command(filepath.Join(bin, "postgres"), settings...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", environment(), out, out
	cmd.SysProcAttr = attributes(who)
	dieWithParent(cmd.SysProcAttr)

	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(c.exited)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("run %s: %w", cmd.Path, err)
	}
	c.process = cmd.Process
	return nil
}

// ready waits until the server says in its pid file that it takes connections.
func (c *Cluster) ready(ctx context.Context) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		pid, status := readPidFile(c.data())
		if pid == c.process.Pid && status == "ready" {
			return nil
		}
		select {
		case <-tick.C:
		case <-c.exited:
			return fmt.Errorf("the server ended at once:\n%s", tail(filepath.Join(c.dir, "postgres.log")))
		case <-ctx.Done():
			return fmt.Errorf("the server does not get ready: %w:\n%s", ctx.Err(), tail(filepath.Join(c.dir, "postgres.log")))
		}
	}
}

// URL is how to reach a database of the cluster. The database "postgres"
// always exists.
func (c *Cluster) URL(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User(superuser), Path: "/" + database,
		RawQuery: "host=" + url.QueryEscape(c.sockets) + "&port=" + port + "&sslmode=disable",
	}
	return u.String()
}

// Done is closed when the server has ended, by Stop or by itself.
func (c *Cluster) Done() <-chan struct{} { return c.exited }

// Stop ends the server: open transactions are rolled back, connections closed,
// the data left clean. When ctx ends first, the server is made to end at once,
// which costs the next start a recovery.
func (c *Cluster) Stop(ctx context.Context) error {
	c.stopping.Do(func() {
		defer c.unlock()
		defer removeSockets(c.dir, c.sockets)
		_ = c.process.Signal(syscall.SIGINT) // a fast shutdown
		select {
		case <-c.exited:
			return
		case <-ctx.Done():
		}
		c.stopped = fmt.Errorf("stop Postgres in %s: it had to be forced: %w", c.dir, ctx.Err())
		_ = c.process.Signal(syscall.SIGQUIT) // an immediate shutdown
		select {
		case <-c.exited:
		case <-time.After(forceTime):
			_ = c.process.Kill()
			<-c.exited
		}
	})
	return c.stopped
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

// environment is ours without what would configure the server or initdb behind
// our back.
func environment() []string {
	env := []string{"LC_ALL=C"}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PG") && !strings.HasPrefix(v, "LC_") && !strings.HasPrefix(v, "LANG") {
			env = append(env, v)
		}
	}
	return env
}

// lock takes the file for this process. The lock ends with the process, however
// that ends.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrInUse
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// unlock releases the lock itself before the file: another thread may just have
// forked, and its child has the file until it executes its program.
func (c *Cluster) unlock() {
	_ = syscall.Flock(int(c.lock.Fd()), syscall.LOCK_UN)
	_ = c.lock.Close()
}

// ErrInUse says that another process runs the folder's server.
var ErrInUse = errors.New("another process runs this Postgres")

// largeLog is when the server's log starts anew; one old log is kept.
const largeLog = 16 << 20

func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > largeLog {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// tail is the end of the log, for an error.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}
