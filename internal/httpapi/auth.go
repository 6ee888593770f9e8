package httpapi

import (
	"context"
	"log/slog"
	"strings"

	api "pictor/gen"
	"pictor/internal/apikey"
	"pictor/internal/fault"
	"pictor/internal/logctx"
)

// caller is whose key came with the request.
type caller struct {
	key     apikey.Hash
	account int64
}

type callerKey struct{}

// callerOf is set in every handler of an operation that needs a key.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// HandleBearer checks `Authorization: Bearer <API_KEY>`.
func (a *API) HandleBearer(ctx context.Context, operation api.OperationName, t api.Bearer) (context.Context, error) {
	return a.authenticate(ctx, operation, t.Token)
}

// HandleAPIKey checks `X-Api-Key: <API_KEY>`. With both headers it runs after
// HandleBearer and gets the context that that one returned.
func (a *API) HandleAPIKey(ctx context.Context, operation api.OperationName, t api.APIKey) (context.Context, error) {
	return a.authenticate(ctx, operation, t.APIKey)
}

func (a *API) authenticate(ctx context.Context, operation api.OperationName, secret string) (context.Context, error) {
	key, ok := apikey.Parse(a.config.KeyPrefix, strings.TrimSpace(secret))
	if !ok {
		return ctx, fault.New(fault.InvalidKey, "This is not an API key of this service: check that it was copied whole.")
	}
	hash := key.Hash()
	if first, ok := ctx.Value(callerKey{}).(caller); ok {
		if first.key != hash {
			return ctx, fault.New(fault.InvalidKey, "The Authorization and X-Api-Key headers hold different keys. Send only one of them.")
		}
		return ctx, nil
	}
	account, err := a.keys.account(ctx, hash)
	if err != nil {
		return ctx, err
	}
	x := exchangeOf(ctx)
	x.account = account
	ctx = logctx.With(ctx, slog.Int64("account", account))
	a.refuseEarly(ctx, x, operation)
	return context.WithValue(ctx, callerKey{}, caller{hash, account}), nil
}

// Forget makes the next use of a key look it up again. It is called for every
// key that was revoked, and every key of a deleted account, in any process.
func (a *API) Forget(h apikey.Hash) { a.keys.forget(h) }

// ForgetAll is Forget for every key: broadcasts may have been missed.
func (a *API) ForgetAll() { a.keys.forgetAll() }

func accountGone() *fault.Error {
	return fault.New(fault.AccountNotFound, "The account behind this key no longer exists.")
}
