// Package db is the schema: embedded goose migrations, and what applies them.
//
// A migration that has been released is never edited; a change is a new file.
package db

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"time"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var files embed.FS

// Migration is one file and whether this database has it.
type Migration struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	Applied   bool       `json:"applied"`
	AppliedAt *time.Time `json:"applied_at"`
}

// Migrate applies what is missing. Any number of processes may call it at
// once: one applies, under an advisory lock of its session, and the others
// wait. With nothing to apply it takes no lock.
//
// Processes may be at work meanwhile. A migration that must wait for a long
// query, such as a sum over the ledger, does so for lockTimeout and then begins
// anew: while it waits for a table, everybody else waits behind it.
//
// The lock belongs to a session, so url must lead to Postgres itself, not to a
// pgbouncer that pools transactions.
func Migrate(ctx context.Context, url string) error {
	// Looks every second for five minutes.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300))
	if err != nil {
		return fmt.Errorf("make the migration lock: %w", err)
	}
	return with(url, func(p *goose.Provider) error {
		pending, err := p.HasPending(ctx)
		if err != nil {
			return fmt.Errorf("look for pending migrations: %w", err)
		}
		if !pending {
			return nil
		}
		for {
			_, err := p.Up(ctx)
			if err == nil {
				return nil
			}
			if pq.As(err, pqerror.LockNotAvailable) == nil {
				return fmt.Errorf("migrate: %w", err)
			}
			select {
			case <-time.After(lockTimeout): // the others' turn
			case <-ctx.Done():
				return fmt.Errorf("migrate: a query holds the table for long: %w", errors.Join(err, ctx.Err()))
			}
		}
	}, map[string]string{"lock_timeout": lockTimeout.String()}, goose.WithSessionLocker(locker))
}

// lockTimeout is how long a migration may keep the others from a table that it
// does not get.
const lockTimeout = 2 * time.Second

// Status lists every migration in order. It needs no session: url may lead to a
// pgbouncer that pools transactions.
func Status(ctx context.Context, url string) ([]Migration, error) {
	var all []Migration
	err := with(url, func(p *goose.Provider) error {
		status, err := p.Status(ctx)
		if err != nil {
			return fmt.Errorf("read the state of the migrations: %w", err)
		}
		for _, s := range status {
			m := Migration{Version: s.Source.Version, Name: s.Source.Path, Applied: s.State == goose.StateApplied}
			if m.Applied {
				m.AppliedAt = &s.AppliedAt
			}
			all = append(all, m)
		}
		return nil
	}, nil)
	return all, err
}

// Versions lists the versions of the embedded migrations, in order.
func Versions() ([]int64, error) {
	entries, err := fs.ReadDir(files, "migrations")
	if err != nil {
		return nil, fmt.Errorf("list the migrations: %w", err)
	}
	versions := make([]int64, len(entries))
	for i, e := range entries {
		if versions[i], err = goose.NumericComponent(e.Name()); err != nil {
			return nil, fmt.Errorf("read the version of %s: %w", e.Name(), err)
		}
	}
	return versions, nil
}

// Hash names the schema: it changes with any byte of any migration.
func Hash() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := files.ReadFile(path)
		fmt.Fprintf(sum, "%s %d\n%s", path, len(content), content)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("hash the migrations: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16], nil
}

func with(url string, do func(*goose.Provider) error, settings map[string]string, options ...goose.ProviderOption) error {
	cfg, err := pq.NewConfig(url)
	if err != nil {
		return fmt.Errorf("database URL: %w", err)
	}
	cfg.BinaryParameters = true // one message for a statement: see Status
	cfg.Runtime = maps.Clone(cfg.Runtime)
	if cfg.Runtime == nil {
		cfg.Runtime = make(map[string]string)
	}
	maps.Copy(cfg.Runtime, settings)
	connector, err := pq.NewConnectorConfig(cfg)
	if err != nil {
		return fmt.Errorf("database URL: %w", err)
	}
	conn := sql.OpenDB(connector)
	defer conn.Close()
	migrations, err := fs.Sub(files, "migrations")
	if err != nil {
		return fmt.Errorf("read the embedded migrations: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, conn, migrations, options...)
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	return do(p)
}
