package cluster

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
)

// CreateDatabase makes a database, unless it is there already.
func (c *Cluster) CreateDatabase(ctx context.Context, name string) error {
	db, err := sql.Open("postgres", c.URL("postgres"))
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, "create database "+pq.QuoteIdentifier(name))
	if err != nil && pq.As(err, pqerror.DuplicateDatabase) == nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}
