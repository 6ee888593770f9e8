// Package pgtest gives each test a Postgres database of its own.
//
// A test binary runs one private cluster, started by the first test that asks.
// It lives in a slot, a folder below the temporary one that the next test
// binary reuses, so that only the first run on a machine pays for initdb; test
// binaries that run side by side take different slots. The cluster dies with
// its test binary, whether that ends, panics or is killed.
//
// A database is cloned from a template that has the migrations, named by their
// hash. It is dropped after the test, but kept when the test failed.
package pgtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lib/pq"

	"pictor/db"
	"pictor/internal/cluster"
	"pictor/internal/postgres"
)

const (
	slots = 64
	kept  = 24 * time.Hour // how long the database of a failed test stays
)

// server is what all tests of this binary share.
type server struct {
	*cluster.Cluster
	dir      string
	admin    *sql.DB // connected to the database "postgres"
	template string
}

// shared is the one variable of its kind: nothing else reaches from one test
// of a binary to the next.
var shared = sync.OnceValues(start)

// New gives the test a migrated, empty database.
func New(t testing.TB) *postgres.DB {
	t.Helper()
	return Open(t, URL(t))
}

// Open connects to a database of the test until the test ends.
func Open(t testing.TB, url string) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), url, postgres.Config{Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// URL gives the test a migrated, empty database to connect to by itself.
func URL(t testing.TB) string {
	t.Helper()
	s := running(t)
	return s.create(t, " template "+s.template)
}

// Empty gives the test a database without any migration.
func Empty(t testing.TB) string {
	t.Helper()
	return running(t).create(t, "")
}

func running(t testing.TB) *server {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatalf("tests need a Postgres server: %v", err)
	}
	return s
}

// create makes a database; its name begins with the second it was made in.
func (s *server) create(t testing.TB, options string) string {
	t.Helper()
	name := fmt.Sprintf("test_%d_%s", time.Now().Unix(), strings.ToLower(rand.Text()[:10]))
	if _, err := s.admin.ExecContext(t.Context(), "create database "+name+options); err != nil {
		t.Fatalf("create a database for the test: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the database of this test is kept for a day, as %s in the cluster %s/data", name, s.dir)
			return
		}
		if _, err := s.admin.Exec("drop database " + name + " with (force)"); err != nil {
			t.Errorf("drop the database of the test: %v", err)
		}
	})
	return s.URL(name)
}

func start() (*server, error) {
	ctx, done := context.WithTimeout(context.Background(), time.Minute)
	defer done()
	s := &server{}
	var err error
	if s.Cluster, s.dir, err = startInSlot(ctx); err != nil {
		return nil, err
	}
	if s.admin, err = sql.Open("postgres", s.URL("postgres")); err != nil {
		return nil, err
	}
	if err := s.dropOld(ctx); err != nil {
		return nil, err
	}
	if err := s.makeTemplate(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// startInSlot takes the first slot that no other test binary runs.
func startInSlot(ctx context.Context) (*cluster.Cluster, string, error) {
	root := filepath.Join(os.TempDir(), fmt.Sprintf("pictor-pgtest-%d", os.Getuid()))
	for n := range slots {
		dir := filepath.Join(root, fmt.Sprint(n))
		if err := freshAfterBoot(root, dir); err != nil {
			return nil, "", err
		}
		c, err := cluster.Options{Unsafe: true, MaxConnections: 500}.Start(ctx, dir, slog.New(slog.DiscardHandler))
		if errors.Is(err, cluster.ErrInUse) {
			continue
		}
		return c, dir, err
	}
	return nil, "", fmt.Errorf("%d test binaries run already in %s", slots, root)
}

// freshAfterBoot removes a slot that was made before the machine started: it is
// written without fsync, so a crash of the machine may have ruined it. Where
// the system does not tell, slots stay.
func freshAfterBoot(root, dir string) error {
	if err := os.MkdirAll(root, 0o711); err != nil {
		return fmt.Errorf("make the folder of the slots: %w", err)
	}
	lock, err := os.Open(root)
	if err != nil {
		return fmt.Errorf("open the folder of the slots: %w", err)
	}
	defer lock.Close() // which unlocks
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock the folder of the slots: %w", err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil
	}
	stamp := filepath.Join(dir, "boot_id")
	if was, err := os.ReadFile(stamp); err == nil && string(was) == string(boot) {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove a slot from before the machine started: %w", err)
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return fmt.Errorf("make a slot: %w", err)
	}
	return os.WriteFile(stamp, boot, 0o600)
}

// dropOld drops databases of failed tests, and templates of other migrations,
// that nobody looks at any more.
func (s *server) dropOld(ctx context.Context) error {
	rows, err := s.admin.QueryContext(ctx, `select datname from pg_database where datname like 'test\_%' or datname like 'making\_%'`)
	if err != nil {
		return err
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		var second int64
		if n, _ := fmt.Sscanf(name, "test_%d_", &second); n == 1 && time.Since(time.Unix(second, 0)) < kept {
			continue
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, name := range names {
		if _, err := s.admin.ExecContext(ctx, "drop database "+pq.QuoteIdentifier(name)+" with (force)"); err != nil {
			return err
		}
	}
	return nil
}

// makeTemplate migrates under another name first, so that the template is whole
// or absent.
func (s *server) makeTemplate(ctx context.Context) error {
	hash, err := db.Hash()
	if err != nil {
		return err
	}
	s.template = "template_" + hash
	var there bool
	err = s.admin.QueryRowContext(ctx, `select exists (select from pg_database where datname = $1)`, s.template).Scan(&there)
	if err != nil || there {
		return err
	}
	making := "making_" + hash
	if err := s.CreateDatabase(ctx, making); err != nil {
		return err
	}
	if err := db.Migrate(ctx, s.URL(making)); err != nil {
		return err
	}
	_, err = s.admin.ExecContext(ctx, "alter database "+making+" rename to "+s.template)
	return err
}
