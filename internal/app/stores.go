package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"

	"pictor/internal/blob"
	"pictor/internal/bus"
	"pictor/internal/postgres"
)

// startTimeout bounds how long a start waits for the database.
const startTimeout = 30 * time.Second

// parts are the three places where state is.
type parts struct {
	db    *postgres.DB
	store *blob.Store
	queue *bus.Bus
}

// openParts connects to the database, the store and the queue. name tells the
// process apart in the listings of Postgres and NATS.
func openParts(ctx context.Context, c Stores, name string, traces *traces, log *slog.Logger) (*parts, closers, error) {
	var opened closers
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	database, err := postgres.Open(ctx, c.DatabaseURL, postgres.Config{Name: name})
	if err != nil {
		return nil, nil, err
	}
	opened.add(func() { _ = database.Close() })
	// Nothing migrates by itself but `pictor dev`: with several processes, when
	// that happens is the operator's decision.
	if err := database.Migrated(ctx); err != nil {
		opened.close()
		return nil, nil, err
	}
	store, err := blob.Open(ctx, c.BlobURL)
	if err != nil {
		opened.close()
		return nil, nil, err
	}
	opened.add(func() { _ = store.Close() })
	connection := c.queue(name)
	connection.Carry = traces.carry
	queue, err := bus.Connect(connection, log)
	if err != nil {
		opened.close()
		return nil, nil, err
	}
	opened.add(queue.Close)
	return &parts{database, store, queue}, opened, nil
}

// checks are what must answer for a process that uses the parts to be ready.
func (p *parts) checks() []check {
	return []check{
		{"database", p.db.Ping},
		{"migrations", p.db.Migrated},
		{"queue", func(ctx context.Context) error { _, err := p.queue.Backlog(ctx); return err }},
		{"store", p.store.Check},
	}
}

// processName tells this process apart from every other one, also after a
// restart on the same machine.
func processName(role string) (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name the process: %w", err)
	}
	return fmt.Sprintf("pictor-%s-%s-%d-%s", role, host, os.Getpid(), uuid.NewString()[:8]), nil
}
