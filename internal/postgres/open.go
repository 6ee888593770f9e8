package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
)

// Config is the connection budget of one process.
type Config struct {
	MaxConns int           // most connections at a time; default 16
	Name     string        // shown in pg_stat_activity; default "pictor"
	Timeout  time.Duration // of one call, waiting for a connection included; default 10 s
}

// DB is the database. It is safe for concurrent use.
type DB struct {
	conn    *sqlx.DB
	timeout time.Duration
}

// Open connects and checks that the server answers.
func Open(ctx context.Context, url string, c Config) (*DB, error) {
	cfg, err := pq.NewConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	if c.MaxConns == 0 {
		c.MaxConns = 16
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if cfg.ApplicationName == "" {
		cfg.ApplicationName = "pictor"
		if c.Name != "" {
			cfg.ApplicationName = c.Name
		}
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 5 * time.Second
	}
	// Parse, bind and execute in one message: half the round trips, and the
	// only form that a transaction-pooling pgbouncer keeps on one server.
	cfg.BinaryParameters = true
	connector, err := pq.NewConnectorConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	conn := sqlx.NewDb(sql.OpenDB(connector), "postgres")
	conn.SetMaxOpenConns(c.MaxConns)
	conn.SetMaxIdleConns(c.MaxConns)
	conn.SetConnMaxIdleTime(5 * time.Minute)
	db := &DB{conn: conn, timeout: c.Timeout}
	if err := db.Ping(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return db, nil
}

// Ping checks that the server answers.
func (db *DB) Ping(ctx context.Context) error {
	ctx, done := db.limit(ctx)
	defer done()
	var one int
	if err := db.conn.GetContext(ctx, &one, `select 1`); err != nil {
		return fmt.Errorf("reach the database: %w", err)
	}
	return nil
}

// Close closes the connections. Calls in progress fail.
func (db *DB) Close() error {
	if err := db.conn.Close(); err != nil {
		return fmt.Errorf("close the database: %w", err)
	}
	return nil
}

func (db *DB) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, db.timeout)
}
