package httpapi

import (
	"context"

	api "pictor/gen"
)

// GetMe is GET /me. It looks the key up each time: the balance must be fresh.
func (a *API) GetMe(ctx context.Context) (*api.Account, error) {
	account, err := a.db.Authenticate(ctx, callerOf(ctx).key)
	if err != nil {
		return nil, err
	}
	if account.Deleted {
		return nil, accountGone()
	}
	return toAccount(account), nil
}
