package app

import (
	"context"
	"errors"

	"pictor/internal/apikey"
	"pictor/internal/fault"
	"pictor/internal/point"
	"pictor/internal/postgres"
)

const (
	devAccount = "dev"
	devBalance = 1000 * point.Point
)

// account makes the account of the stack with a key, or finds them. The key is
// the one of the last run, because the database does not have it.
func (s *Stack) account(ctx context.Context, prefix string) error {
	database, err := postgres.Open(ctx, s.Info.DatabaseURL, postgres.Config{Name: "pictor-dev", MaxConns: 1})
	if err != nil {
		return err
	}
	defer database.Close()
	a, err := database.Account(ctx, devAccount)
	if errors.Is(err, postgres.ErrNoAccount) || err == nil && a.Deleted {
		a, err = database.CreateAccount(ctx, devAccount, devBalance, false)
	}
	if err != nil {
		return err
	}
	s.Info.Account = a.Name
	if key, ok := apikey.Parse(prefix, s.last.APIKey); ok {
		of, err := database.Authenticate(ctx, key.Hash())
		if err == nil && of.ID == a.ID {
			s.Info.APIKey = string(key)
			return nil
		}
		if err != nil && fault.From(err).Code != fault.InvalidKey {
			return err
		}
	}
	key := apikey.New(prefix)
	if _, err := database.CreateKey(ctx, a.ID, key, "pictor dev"); err != nil {
		return err
	}
	s.Info.APIKey = string(key)
	return nil
}
