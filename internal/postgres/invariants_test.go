package postgres_test

import (
	"testing"

	"pictor/internal/testkit/pgtest"
)

// Every invariant must be able to turn red: each is broken here, by a hand that
// takes the constraints out of the way first.
func TestInvariants_turn_red(t *testing.T) {
	t.Parallel()
	for name, breach := range breaches() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := openAny(t, 2)
			a := pgtest.NewAccount(t, b.DB, 1000)
			pgtest.NewKey(t, b.DB, a.ID)
			completed, failed := pgtest.Claimed(t, b.DB, a.ID), pgtest.Claimed(t, b.DB, a.ID)
			must[bool](t)(b.Complete(t.Context(), completed.ID, completed.Fence, result(completed.ID)))
			must[bool](t)(b.Fail(t.Context(), failed.ID, failed.Fence, "no"))
			pgtest.Claimed(t, b.DB, a.ID)
			b.hold(t)

			b.exec(t, breach)

			for _, v := range b.violations(t) {
				if v.Name == name {
					if v.Count == 0 {
						t.Errorf("%s stays green", name)
					}
					if v.Hint == "" {
						t.Errorf("%s has no hint", name)
					}
					return
				}
			}
			t.Errorf("there is no invariant %s", name)
		})
	}
}

func TestInvariants_are_each_broken_once(t *testing.T) {
	t.Parallel()
	b := openAny(t, 2)
	for _, v := range b.violations(t) {
		if _, ok := breaches()[v.Name]; !ok {
			t.Errorf("nothing here breaks %s", v.Name)
		}
	}
}

// breaches are statements that break one invariant each, by its name.
func breaches() map[string]string {
	// Named as Postgres named them, where the migration did not.
	drop := func(table string, constraints ...string) (statements string) {
		for _, c := range constraints {
			statements += "alter table " + table + " drop constraint " + c + ";"
		}
		return statements
	}
	const unguarded = `alter table ledger disable trigger ledger_append_only;`
	return map[string]string{
		"balance_is_ledger":    `update accounts set balance = balance + 1`,
		"balance_not_negative": drop("accounts", "accounts_balance_check") + `update accounts set balance = -1`,
		"balance_after_follows": unguarded + `update ledger set balance_after = balance_after + 1
			where id = (select min(id) from ledger)`,
		"one_charge_per_job": unguarded + `update ledger set amount = amount - 1 where kind = 'charge'`,
		"failed_is_refunded_once": unguarded + drop("ledger", "ledger_once_per_job") + `
			insert into ledger (account_id, job_id, kind, amount, balance_after)
			select account_id, job_id, kind, amount, balance_after from ledger where kind = 'refund'`,
		"only_failed_is_refunded": `insert into ledger (account_id, job_id, kind, amount, balance_after)
			select account_id, id, 'refund', cost, 0 from jobs where state = 'completed'`,
		"ledger_row_has_job": drop("ledger", "ledger_kind_has_sign") + `
			insert into ledger (account_id, kind, amount, balance_after) select id, 'charge', -1, 0 from accounts`,
		"running_is_counted": `update accounts set running = 0`,
		"running_within_cap": `insert into jobs (id, account_id, task, cost, input_type, input_size, input_width, input_height)
			select gen_random_uuid(), id, 'remove-bg', 100, 'image/png', 1, 1, 1 from accounts, generate_series(1, 5)`,
		"keys_are_counted": `update accounts set keys = 0`,
		"keys_within_cap": `insert into api_keys (account_id, hash, hint)
			select id, sha256(n::text::bytea), '' from accounts, generate_series(1, 5) n`,
		"result_is_of_the_last_claim": drop("jobs", "jobs_result_is_of_the_last_claim") + `
			update jobs set fence = fence + 1 where state = 'completed'`,
		"completed_has_result": drop("jobs", "jobs_completed_has_result") + `
			update jobs set result_token = null where state = 'completed'`,
		"result_token_is_unique": `drop index jobs_result_token;` + drop("jobs", "jobs_completed_has_result") + `
			update jobs set result_token = 'x'`,
		"final_is_finished": drop("jobs", "jobs_final_is_finished") + `update jobs set finished_at = null`,
		"key_made_one_job": `drop index jobs_idempotency_key;
			update jobs set idempotency_key = 'k', idempotency_hash = 'x'`,
		"ledger_is_guarded": unguarded,
		"no_job_hangs":      `update jobs set heartbeat_at = heartbeat_at - interval '7 minutes', created_at = created_at - interval '7 minutes'`,
	}
}
