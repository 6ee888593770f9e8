package postgres

type invariant struct{ name, hint, query string }

// invariants are the statements behind Invariants, each counting breaches.
func invariants() []invariant {
	return []invariant{
		{"balance_is_ledger", "An account's balance is the sum of its ledger; if not, Point was created or lost.", `
		select count(*) from accounts a
		left join (select account_id, sum(amount) as total from ledger group by 1) l on l.account_id = a.id
		where a.balance <> coalesce(l.total, 0)`},
		{"balance_not_negative", "No balance is below zero.", `
		select count(*) from accounts where balance < 0`},
		{"balance_after_follows", "Each ledger row continues from the one before; if not, a row is missing, doubled or changed.", `
		select count(*) from (
			select amount, balance_after, lag(balance_after, 1, 0::bigint) over (partition by account_id order by id) as before from ledger
		) l where before + amount <> balance_after`},
		{"one_charge_per_job", "Every job was charged exactly once, its cost, to its own account.", `
		select count(*) from jobs j
		where (select count(*) from ledger l where l.job_id = j.id and l.kind = 'charge') <> 1
			or not exists (select from ledger l where l.job_id = j.id and l.kind = 'charge' and l.amount = -j.cost and l.account_id = j.account_id)`},
		{"failed_is_refunded_once", "Every failed job was refunded exactly once, its cost, to its own account.", `
		select count(*) from jobs j
		where j.state = 'failed' and (
			not j.refunded
			or (select count(*) from ledger l where l.job_id = j.id and l.kind = 'refund') <> 1
			or not exists (select from ledger l where l.job_id = j.id and l.kind = 'refund' and l.amount = j.cost and l.account_id = j.account_id))`},
		{"only_failed_is_refunded", "No job that did not fail was refunded.", `
		select count(*) from jobs j
		where j.state <> 'failed' and (j.refunded or exists (select from ledger l where l.job_id = j.id and l.kind = 'refund'))`},
		{"ledger_row_has_job", "Every charge and refund names a job, and no credit does.", `
		select count(*) from ledger l left join jobs j on j.id = l.job_id
		where (l.kind in ('charge', 'refund')) <> (j.id is not null)`},
		{"running_is_counted", "An account's running counter is the number of its unfinished jobs; if not, its cap is wrong.", `
		select count(*) from accounts a
		where a.running <> (select count(*) from jobs j where j.account_id = a.id and j.state in ('queued', 'processing'))`},
		{"running_within_cap", "No account runs more than 5 jobs.", `
		select count(*) from (select from jobs where state in ('queued', 'processing') group by account_id having count(*) > 5) j`},
		{"keys_are_counted", "An account's key counter is the number of its keys that are not revoked.", `
		select count(*) from accounts a
		where a.keys <> (select count(*) from api_keys k where k.account_id = a.id and k.revoked_at is null)`},
		{"keys_within_cap", "No account has more than 5 keys.", `
		select count(*) from (select from api_keys where revoked_at is null group by account_id having count(*) > 5) k`},
		{"result_is_of_the_last_claim", "A published result was written under the job's last fence; if not, a worker that lost its lease published.", `
		select count(*) from jobs where state = 'completed' and result_fence is distinct from fence`},
		{"completed_has_result", "A completed job, and no other, has a result.", `
		select count(*) from jobs
		where (state = 'completed') <> (result_token is not null) or (state = 'completed') <> (result_fence is not null)`},
		{"result_token_is_unique", "No two results share a public name.", `
		select count(*) from (select from jobs where result_token is not null group by result_token having count(*) > 1) j`},
		{"final_is_finished", "A completed or failed job, and no other, has an end.", `
		select count(*) from jobs where (state in ('completed', 'failed')) <> (finished_at is not null)`},
		{"key_made_one_job", "An Idempotency-Key of an account belongs to one job.", `
		select count(*) from (
			select from jobs where idempotency_key is not null group by account_id, idempotency_key having count(*) > 1) j`},
		{"ledger_is_guarded", "The trigger that keeps the ledger append-only is in place.", `
		select 1 - count(*) from pg_trigger where tgrelid = 'ledger'::regclass and tgname = 'ledger_append_only' and tgenabled = 'O'`},
	}
}
