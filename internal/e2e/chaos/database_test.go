package chaos_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/lib/pq"

	"pictor/internal/cluster"
)

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
