package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"pictor/internal/apikey"
	"pictor/internal/fault"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/testkit/pgtest"
)

func ctx() context.Context { return context.Background() }

func newKey() apikey.Key { return apikey.New("pictor") }

func fails(t *testing.T, what string, want, err error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: want %v, got %v", what, want, err)
	}
}

func TestCreateAccount(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	a := must[postgres.Account](t)(b.CreateAccount(t.Context(), "demo", 10*point.Point, true))
	same(t, "account", postgres.Account{ID: a.ID, Name: "demo", VIP: true, Balance: 10 * point.Point, CreatedAt: a.CreatedAt}, a)
	same(t, "by name", a, must[postgres.Account](t)(b.Account(t.Context(), "demo")))
	same(t, "by id", a, must[postgres.Account](t)(b.AccountByID(t.Context(), a.ID)))
	poor := must[postgres.Account](t)(b.CreateAccount(t.Context(), "poor", 0, false))
	same(t, "ledger of an empty account", []postgres.LedgerRow{}, must[[]postgres.LedgerRow](t)(b.Ledger(t.Context(), poor.ID)))
	same(t, "all", []postgres.Account{a, poor}, must[[]postgres.Account](t)(b.Accounts(t.Context())))

	_, err := b.CreateAccount(t.Context(), "demo", 0, false)
	fails(t, "a taken name", postgres.ErrNameTaken, err)
	_, err = b.CreateAccount(t.Context(), "debt", -1, false)
	fails(t, "a debt", postgres.ErrOverdraft, err)
	for _, name := range []string{"", strings.Repeat("x", 201)} {
		if _, err := b.CreateAccount(t.Context(), name, 0, false); err == nil {
			t.Errorf("an account named %q was made", name)
		}
	}
	_, err = b.Account(t.Context(), "nobody")
	fails(t, "an unknown name", postgres.ErrNoAccount, err)
	_, err = b.AccountByID(t.Context(), 1<<40)
	fails(t, "an unknown id", postgres.ErrNoAccount, err)
}

func TestDeleteAccount_keeps_keys_and_lets_jobs_end(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	first := must[postgres.Account](t)(b.CreateAccount(t.Context(), "demo", 1000, false))
	key := pgtest.NewKey(t, b.DB, first.ID)
	j := pgtest.Claimed(t, b.DB, first.ID)
	for range 2 {
		if err := b.DeleteAccount(t.Context(), first.ID); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "the key's account is deleted", true, must[postgres.Account](t)(b.Authenticate(t.Context(), key.Hash())).Deleted)
	must[bool](t)(b.Fail(t.Context(), j.ID, j.Fence, "no"))
	same(t, "account", purse{1000, 0}, b.purse(t, first.ID))
	_, err := b.Credit(t.Context(), first.ID, 1, "")
	fails(t, "a credit", postgres.ErrNoAccount, err)
	_, err = b.CreateKey(t.Context(), first.ID, newKey(), "")
	fails(t, "a new key", postgres.ErrNoAccount, err)
	fails(t, "deleting an unknown account", postgres.ErrNoAccount, b.DeleteAccount(t.Context(), 1<<40))

	same(t, "its name still finds it", first.ID, must[postgres.Account](t)(b.Account(t.Context(), "demo")).ID)
	second := must[postgres.Account](t)(b.CreateAccount(t.Context(), "demo", 0, false))
	same(t, "until another has the name", second.ID, must[postgres.Account](t)(b.Account(t.Context(), "demo")).ID)
}

func TestCredit(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	a := pgtest.NewAccount(t, b.DB, 1000)
	row := must[postgres.LedgerRow](t)(b.Credit(t.Context(), a.ID, -400, "a mistake"))
	same(t, "row", postgres.LedgerRow{ID: row.ID, Kind: "credit", Amount: -400, BalanceAfter: 600, Note: "a mistake", CreatedAt: row.CreatedAt}, row)
	_, err := b.Credit(t.Context(), a.ID, -601, "")
	fails(t, "below zero", postgres.ErrOverdraft, err)
	_, err = b.Credit(t.Context(), a.ID, point.Max, "")
	fails(t, "beyond what JSON can carry", postgres.ErrTooMuch, err)
	_, err = b.Credit(t.Context(), 1<<40, 1, "")
	fails(t, "of nobody", postgres.ErrNoAccount, err)
	if _, err = b.Credit(t.Context(), a.ID, 0, ""); err == nil {
		t.Error("a credit of nothing was written")
	}
	must[postgres.LedgerRow](t)(b.Credit(t.Context(), a.ID, -600, ""))
	same(t, "account", purse{0, 0}, b.purse(t, a.ID))
}

func TestLedger_is_append_only(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	pgtest.NewAccount(t, b.DB, 1000)
	for _, statement := range []string{
		`update ledger set amount = 2000`, `delete from ledger`, `truncate ledger`, `update ledger set note = 'x' where false`,
	} {
		if _, err := b.raw.ExecContext(t.Context(), statement); err == nil {
			t.Errorf("%s: it was allowed", statement)
		}
	}
}

// The last line of defence, should a transition ever be wrong: the tables
// themselves refuse what must not be.
func TestTables_refuse(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	a := pgtest.NewAccount(t, b.DB, 1000)
	j := pgtest.Queued(t, b.DB, a.ID)
	for name, statement := range map[string]string{
		"a negative balance":          `update accounts set balance = -1`,
		"a sixth running job":         `update accounts set running = 6`,
		"a sixth key":                 `update accounts set keys = 6`,
		"a second charge":             `insert into ledger (account_id, job_id, kind, amount, balance_after) select account_id, id, 'charge', -cost, 0 from jobs`,
		"a charge that adds":          `insert into ledger (account_id, job_id, kind, amount, balance_after) select account_id, id, 'charge', cost, 0 from jobs`,
		"a refund of no job":          `insert into ledger (account_id, kind, amount, balance_after) select id, 'refund', 100, 0 from accounts`,
		"an unknown state":            `update jobs set state = 'lost'`,
		"a failed job not refunded":   `update jobs set state = 'failed', finished_at = now()`,
		"a refund without failure":    `update jobs set refunded = true`,
		"a completed job, no result":  `update jobs set state = 'completed', finished_at = now(), progress = 100, fence = 1`,
		"a result of an older claim":  `update jobs set state = 'completed', finished_at = now(), progress = 100, fence = 2, result_fence = 1, result_token = 'x', result_type = 'x', result_size = 1`,
		"a final job without an end":  `update jobs set state = 'failed', refunded = true`,
		"progress beyond 100":         `update jobs set progress = 101`,
		"a free job":                  `update jobs set cost = 0`,
		"processing without a claim":  `update jobs set state = 'processing', heartbeat_at = now()`,
		"a key without a fingerprint": `update jobs set idempotency_key = 'k'`,
		"a short key hash":            `insert into api_keys (account_id, hash, hint) select id, 'x', 'x' from accounts`,
	} {
		if _, err := b.raw.ExecContext(t.Context(), statement); err == nil {
			t.Errorf("%s was allowed", name)
		}
	}
	must[bool](t)(b.Cancel(t.Context(), j.ID, "no"))
}

// The limits stand in Go, for the answers, and in the tables, for the truth.
func TestTables_have_the_limits_of_the_words(t *testing.T) {
	t.Parallel()
	b := openAny(t, 2)
	a := pgtest.NewAccount(t, b.DB, 0)
	b.exec(t, `update accounts set running = $1, keys = $2 where id = $3`, job.MaxRunning, job.MaxKeys, a.ID)
}

func TestKeys(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	a := pgtest.NewAccount(t, b.DB, 0)
	key := newKey()
	made := must[postgres.Key](t)(b.CreateKey(t.Context(), a.ID, key, "laptop"))
	same(t, "name and hint", []string{"laptop", key.Hint()}, []string{made.Name, made.Hint})
	same(t, "account", a.ID, must[postgres.Account](t)(b.Authenticate(t.Context(), key.Hash())).ID)
	for range job.MaxKeys - 1 {
		pgtest.NewKey(t, b.DB, a.ID)
	}
	_, err := b.CreateKey(t.Context(), a.ID, newKey(), "")
	fails(t, "a sixth key", postgres.ErrKeys, err)

	for range 2 { // the second time changes nothing
		revoked := must[postgres.Key](t)(b.RevokeKey(t.Context(), made.ID))
		same(t, "revoked", true, revoked.RevokedAt != nil)
	}
	_, err = b.Authenticate(t.Context(), key.Hash())
	same(t, "a revoked key", fault.InvalidKey, refused(t, err))
	_, err = b.Authenticate(t.Context(), newKey().Hash())
	same(t, "an unknown key", fault.InvalidKey, refused(t, err))
	pgtest.NewKey(t, b.DB, a.ID)
	_, err = b.CreateKey(t.Context(), a.ID, newKey(), "")
	fails(t, "a sixth key again", postgres.ErrKeys, err)
	same(t, "listed", job.MaxKeys+1, len(must[[]postgres.Key](t)(b.Keys(t.Context(), a.ID))))
	_, err = b.RevokeKey(t.Context(), 1<<40)
	fails(t, "an unknown key", postgres.ErrNoKey, err)
	_, err = b.CreateKey(t.Context(), 1<<40, newKey(), "")
	fails(t, "a key of nobody", postgres.ErrNoAccount, err)
}

func TestJobs_are_read_by_their_account_only(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	mine, other := pgtest.NewAccount(t, b.DB, 1000), pgtest.NewAccount(t, b.DB, 1000)
	first, second := pgtest.Queued(t, b.DB, mine.ID), pgtest.Queued(t, b.DB, mine.ID)
	theirs := pgtest.Queued(t, b.DB, other.ID)

	_, err := b.Job(t.Context(), other.ID, first.ID)
	same(t, "another's job", fault.NotFound, refused(t, err))
	_, err = b.Job(t.Context(), mine.ID, "no uuid")
	same(t, "a malformed id", fault.NotFound, refused(t, err))
	_, err = b.Job(t.Context(), mine.ID, pgtest.NewID(t))
	same(t, "an unknown id", fault.NotFound, refused(t, err))
	ids := func(account int64, limit int) (ids []job.ID) {
		for _, j := range must[[]job.Job](t)(b.Jobs(t.Context(), account, limit)) {
			ids = append(ids, j.ID)
		}
		return ids
	}
	same(t, "the account's, newest first", []job.ID{second.ID, first.ID}, ids(mine.ID, 10))
	same(t, "the newest of all", []job.ID{theirs.ID}, ids(0, 1))
}
