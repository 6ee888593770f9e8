package app

import (
	"context"

	"pictor/db"
)

// Migrate applies the migrations that the database lacks, and returns all.
func Migrate(ctx context.Context, c Connection) ([]Migration, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if err := db.Migrate(ctx, c.DatabaseURL); err != nil {
		return nil, err
	}
	return db.Status(ctx, c.DatabaseURL)
}

// Migrations lists every migration and whether the database has it.
func Migrations(ctx context.Context, c Connection) ([]Migration, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	return db.Status(ctx, c.DatabaseURL)
}
