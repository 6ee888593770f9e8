-- Every statement of version 1.0.0, as it went to the server. Processes of that
-- version may run beside newer ones, on a schema that has moved on: whatever
-- stands here must go on working. It is never edited; released_test.go runs it.

-- name: create_account
insert into accounts (name, vip, balance) values ($1, $2, $3) returning id, name, vip, balance, running, keys, deleted_at is not null as deleted, created_at

-- name: opening_credit
insert into ledger (account_id, kind, amount, balance_after, note) values ($1, 'credit', $2, $2, 'opening balance')

-- name: account_by_name
select id, name, vip, balance, running, keys, deleted_at is not null as deleted, created_at from accounts where name = $1 order by deleted_at desc nulls first limit 1

-- name: account_by_id
select id, name, vip, balance, running, keys, deleted_at is not null as deleted, created_at from accounts where id = $1

-- name: accounts
select id, name, vip, balance, running, keys, deleted_at is not null as deleted, created_at from accounts order by id

-- name: delete_account
update accounts set deleted_at = coalesce(deleted_at, clock_timestamp()) where id = $1

-- name: count_key
update accounts set keys = keys + 1 where id = $1 and deleted_at is null and keys < $2 returning keys

-- name: create_key
insert into api_keys (account_id, hash, hint, name) values ($1, $2, $3, $4)
returning id, account_id, hash, name, hint, created_at, revoked_at

-- name: authenticate
select id, name, vip, balance, running, keys, deleted_at is not null as deleted, created_at from accounts
where id = (select account_id from api_keys where hash = $1 and revoked_at is null)

-- name: keys
select id, account_id, hash, name, hint, created_at, revoked_at from api_keys where account_id = $1 order by id

-- name: key
select id, account_id, hash, name, hint, created_at, revoked_at from api_keys where id = $1

-- name: revoke_key
with revoked as (
	update api_keys set revoked_at = clock_timestamp() where id = $1 and revoked_at is null returning account_id
)
update accounts set keys = accounts.keys - 1 from revoked where accounts.id = revoked.account_id

-- name: credit_balance
update accounts set balance = balance + $2
where id = $1 and deleted_at is null and balance + $2 between 0 and $3
returning balance

-- name: credit_row
insert into ledger (account_id, kind, amount, balance_after, note) values ($1, 'credit', $2, $3, $4)
returning id, kind, amount, balance_after, job_id, note, created_at

-- name: ledger
select id, kind, amount, balance_after, job_id, note, created_at from ledger where account_id = $1 order by id

-- name: affords
select balance, running from accounts where id = $1 and deleted_at is null

-- name: admit
select verdict, job, balance, running, at
from admit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)

-- name: admitted
select id, account_id, task, state, progress, message, cost, refunded, fence,
input_type, input_size, input_width, input_height,
coalesce(result_token, '') as result_token, coalesce(result_type, '') as result_type, coalesce(result_size, 0) as result_size,
created_at, updated_at, finished_at, enqueued_at is not null as enqueued,
			(select balance_after from ledger where job_id = jobs.id and kind = 'charge')
		from jobs where id = $1

-- name: enqueued
update jobs set enqueued_at = coalesce(enqueued_at, clock_timestamp())
where id = $1 and not (state = 'failed' and fence = 0)

-- name: cancel
with failed as (
	update jobs
	set state = 'failed', refunded = true, message = $2, lease_until = null, idempotency_key = null, idempotency_hash = null,
		finished_at = clock_timestamp(), updated_at = clock_timestamp()
	where id = $1 and state = 'queued' and fence = 0 and enqueued_at is null
	returning id, account_id, cost
), refunded as (
	update accounts
	set balance = accounts.balance + failed.cost, running = accounts.running - 1
	from failed where accounts.id = failed.account_id
	returning accounts.id, accounts.balance
)
insert into ledger (account_id, job_id, kind, amount, balance_after)
select failed.account_id, failed.id, 'refund', failed.cost, refunded.balance
from failed join refunded on refunded.id = failed.account_id

-- name: cancelled
select count(*) from jobs where id = $1 and state = 'failed' and fence = 0

-- name: claim
update jobs
	set state = 'processing', fence = fence + 1, message = $2,
		lapses = lapses + case when state = 'processing' and lease_until is not null then 1 else 0 end,
		lease_until = clock_timestamp() + $3::interval, heartbeat_at = clock_timestamp(),
		enqueued_at = coalesce(enqueued_at, clock_timestamp()), updated_at = clock_timestamp()
	where id = $1 and (
		state = 'queued'
		or state = 'processing' and lease_until is null
		or state = 'processing' and lease_until < clock_timestamp() and lapses + 1 < $4)
	returning id, account_id, task, state, progress, message, cost, refunded, fence,
input_type, input_size, input_width, input_height,
coalesce(result_token, '') as result_token, coalesce(result_type, '') as result_type, coalesce(result_size, 0) as result_size,
created_at, updated_at, finished_at

-- name: give_up
with failed as (
	update jobs
	set state = 'failed', refunded = true, message = $2, lease_until = null,
		finished_at = clock_timestamp(), updated_at = clock_timestamp()
	where id = $1 and state = 'processing' and lease_until < clock_timestamp() and lapses + 1 >= $3
	returning id, account_id, cost
), refunded as (
	update accounts
	set balance = accounts.balance + failed.cost, running = accounts.running - 1
	from failed where accounts.id = failed.account_id
	returning accounts.id, accounts.balance
)
insert into ledger (account_id, job_id, kind, amount, balance_after)
select failed.account_id, failed.id, 'refund', failed.cost, refunded.balance
from failed join refunded on refunded.id = failed.account_id

-- name: unfinished
select count(*) from jobs where id = $1 and finished_at is null

-- name: progress
update jobs
set progress = greatest(progress, least($3, 100)), message = coalesce(nullif($4, ''), message),
	lease_until = clock_timestamp() + $5::interval, heartbeat_at = clock_timestamp(), updated_at = clock_timestamp()
where id = $1 and state = 'processing' and fence = $2 and lease_until is not null

-- name: give_back
update jobs set lease_until = null, updated_at = clock_timestamp()
where id = $1 and state = 'processing' and fence = $2

-- name: complete
with completed as (
	update jobs
	set state = 'completed', progress = 100, message = $3, lease_until = null,
		result_fence = fence, result_type = $4, result_size = $5, result_token = $6,
		finished_at = clock_timestamp(), updated_at = clock_timestamp()
	where id = $1 and state = 'processing' and fence = $2
	returning account_id
)
update accounts set running = accounts.running - 1
from completed where accounts.id = completed.account_id

-- name: completed
select count(*) from jobs where id = $1 and state = 'completed' and result_fence = $2

-- name: fail
with failed as (
	update jobs
	set state = 'failed', refunded = true, message = $2, lease_until = null,
		finished_at = clock_timestamp(), updated_at = clock_timestamp()
	where id = $1 and state = 'processing' and fence = $3
	returning id, account_id, cost
), refunded as (
	update accounts
	set balance = accounts.balance + failed.cost, running = accounts.running - 1
	from failed where accounts.id = failed.account_id
	returning accounts.id, accounts.balance
)
insert into ledger (account_id, job_id, kind, amount, balance_after)
select failed.account_id, failed.id, 'refund', failed.cost, refunded.balance
from failed join refunded on refunded.id = failed.account_id

-- name: failed
select count(*) from jobs where id = $1 and state = 'failed' and fence = $2

-- name: sweep
with failed as (
	update jobs
	set state = 'failed', refunded = true, message = $2, lease_until = null,
		finished_at = clock_timestamp(), updated_at = clock_timestamp()
	where id = $1 and (state = 'processing' and lease_until < clock_timestamp() and lapses + 1 >= $3 or (
	state = 'processing' and lease_until is not null and heartbeat_at < clock_timestamp() - $4::interval
	or (state = 'queued' or state = 'processing' and lease_until is null) and coalesce(heartbeat_at, created_at) < clock_timestamp() - $4::interval
		and not exists (select from workers where seen_at > clock_timestamp() - $4::interval and jobs.task = any(workers.tasks))))
	returning id, account_id, cost
), refunded as (
	update accounts
	set balance = accounts.balance + failed.cost, running = accounts.running - 1
	from failed where accounts.id = failed.account_id
	returning accounts.id, accounts.balance
)
insert into ledger (account_id, job_id, kind, amount, balance_after)
select failed.account_id, failed.id, 'refund', failed.cost, refunded.balance
from failed join refunded on refunded.id = failed.account_id

-- name: job
select id, account_id, task, state, progress, message, cost, refunded, fence,
input_type, input_size, input_width, input_height,
coalesce(result_token, '') as result_token, coalesce(result_type, '') as result_type, coalesce(result_size, 0) as result_size,
created_at, updated_at, finished_at from jobs where id = $1 and (account_id = $2::bigint or $2 = 0)

-- name: job_by_token
select id, account_id, task, state, progress, message, cost, refunded, fence,
input_type, input_size, input_width, input_height,
coalesce(result_token, '') as result_token, coalesce(result_type, '') as result_type, coalesce(result_size, 0) as result_size,
created_at, updated_at, finished_at from jobs where result_token = $1 and result_deleted_at is null

-- name: jobs
select id, account_id, task, state, progress, message, cost, refunded, fence,
input_type, input_size, input_width, input_height,
coalesce(result_token, '') as result_token, coalesce(result_type, '') as result_type, coalesce(result_size, 0) as result_size,
created_at, updated_at, finished_at from jobs where account_id = $1::bigint or $1 = 0
	order by created_at desc, id desc limit $2

-- name: billed
select balance_after from ledger where job_id = $1 and kind = 'charge'

-- name: alive
with old as (
	delete from workers where id in (
		select id from workers where seen_at < now() - interval '1 day' and id <> $1 for update skip locked)
)
insert into workers (id, tasks, seen_at) values ($1, $2, clock_timestamp())
on conflict (id) do update set tasks = excluded.tasks, seen_at = excluded.seen_at

-- name: take_turn
insert into turns (name, holder, held_until) values ('sweep', $1, clock_timestamp() + $2::interval)
on conflict (name) do update set holder = excluded.holder, held_until = excluded.held_until
where turns.holder = excluded.holder or turns.held_until < clock_timestamp()

-- name: end_turn
delete from turns where name = 'sweep' and holder = $1

-- name: orphans
select id from jobs
where finished_at is null and state = 'queued' and fence = 0 and enqueued_at is null
	and created_at < now() - $1::interval
order by created_at limit $2

-- name: lost
select id, account_id, task, state, progress, message, cost, refunded, fence,
input_type, input_size, input_width, input_height,
coalesce(result_token, '') as result_token, coalesce(result_type, '') as result_type, coalesce(result_size, 0) as result_size,
created_at, updated_at, finished_at from jobs
	where finished_at is null and enqueued_at < now() - $1::interval
		and (state = 'queued' or state = 'processing' and coalesce(lease_until, updated_at) < now() - $2::interval)
	order by created_at limit $3

-- name: republished
update jobs set enqueued_at = clock_timestamp() where id = $1 and finished_at is null

-- name: stuck
select id from jobs where finished_at is null and (state = 'processing' and lease_until < clock_timestamp() and lapses + 1 >= $1 or (
state = 'processing' and lease_until is not null and heartbeat_at < clock_timestamp() - $2::interval
or (state = 'queued' or state = 'processing' and lease_until is null) and coalesce(heartbeat_at, created_at) < clock_timestamp() - $2::interval
	and not exists (select from workers where seen_at > clock_timestamp() - $2::interval and jobs.task = any(workers.tasks))))
order by created_at limit $3

-- name: expire
update jobs set result_deleted_at = clock_timestamp()
	where id in (
		select id from jobs
		where finished_at < now() - $1::interval and result_token is not null and result_deleted_at is null
		order by finished_at limit $2 for no key update skip locked)
	returning id, account_id, task, state, progress, message, cost, refunded, fence,
input_type, input_size, input_width, input_height,
coalesce(result_token, '') as result_token, coalesce(result_type, '') as result_type, coalesce(result_size, 0) as result_size,
created_at, updated_at, finished_at

-- name: inputs
select id from jobs where finished_at is not null and input_deleted_at is null
order by finished_at limit $1

-- name: input_deleted
update jobs set input_deleted_at = coalesce(input_deleted_at, clock_timestamp())
where id = $1 and finished_at is not null

-- name: owns
select fence, input_deleted_at is null as input,
	state = 'processing' or state = 'completed' and result_deleted_at is null as result
from jobs where id = $1

-- name: tally_unfinished
select task, state, count(*) as jobs from jobs where finished_at is null group by task, state

-- name: tally_finished
select task, state, count(*) as jobs from jobs where finished_at is not null group by task, state

-- name: movements
select kind, sum(amount)::bigint as amount from ledger group by kind

-- name: no_job_hangs
select count(*) from jobs where finished_at is null and (
state = 'processing' and lease_until is not null and heartbeat_at < clock_timestamp() - $1::interval
or (state = 'queued' or state = 'processing' and lease_until is null) and coalesce(heartbeat_at, created_at) < clock_timestamp() - $1::interval
	and not exists (select from workers where seen_at > clock_timestamp() - $1::interval and jobs.task = any(workers.tasks)))

-- name: migration
SELECT tstamp, is_applied FROM goose_db_version WHERE version_id=$1 ORDER BY tstamp DESC LIMIT 1

-- name: invariant_balance_is_ledger
select count(*) from accounts a
left join (select account_id, sum(amount) as total from ledger group by 1) l on l.account_id = a.id
where a.balance <> coalesce(l.total, 0)

-- name: invariant_balance_not_negative
select count(*) from accounts where balance < 0

-- name: invariant_balance_after_follows
select count(*) from (
	select amount, balance_after, lag(balance_after, 1, 0::bigint) over (partition by account_id order by id) as before from ledger
) l where before + amount <> balance_after

-- name: invariant_one_charge_per_job
select count(*) from jobs j
where (select count(*) from ledger l where l.job_id = j.id and l.kind = 'charge') <> 1
	or not exists (select from ledger l where l.job_id = j.id and l.kind = 'charge' and l.amount = -j.cost and l.account_id = j.account_id)

-- name: invariant_failed_is_refunded_once
select count(*) from jobs j
where j.state = 'failed' and (
	not j.refunded
	or (select count(*) from ledger l where l.job_id = j.id and l.kind = 'refund') <> 1
	or not exists (select from ledger l where l.job_id = j.id and l.kind = 'refund' and l.amount = j.cost and l.account_id = j.account_id))

-- name: invariant_only_failed_is_refunded
select count(*) from jobs j
where j.state <> 'failed' and (j.refunded or exists (select from ledger l where l.job_id = j.id and l.kind = 'refund'))

-- name: invariant_ledger_row_has_job
select count(*) from ledger l left join jobs j on j.id = l.job_id
where (l.kind in ('charge', 'refund')) <> (j.id is not null)

-- name: invariant_running_is_counted
select count(*) from accounts a
where a.running <> (select count(*) from jobs j where j.account_id = a.id and j.state in ('queued', 'processing'))

-- name: invariant_running_within_cap
select count(*) from (select from jobs where state in ('queued', 'processing') group by account_id having count(*) > 5) j

-- name: invariant_keys_are_counted
select count(*) from accounts a
where a.keys <> (select count(*) from api_keys k where k.account_id = a.id and k.revoked_at is null)

-- name: invariant_keys_within_cap
select count(*) from (select from api_keys where revoked_at is null group by account_id having count(*) > 5) k

-- name: invariant_result_is_of_the_last_claim
select count(*) from jobs where state = 'completed' and result_fence is distinct from fence

-- name: invariant_completed_has_result
select count(*) from jobs
where (state = 'completed') <> (result_token is not null) or (state = 'completed') <> (result_fence is not null)

-- name: invariant_result_token_is_unique
select count(*) from (select from jobs where result_token is not null group by result_token having count(*) > 1) j

-- name: invariant_final_is_finished
select count(*) from jobs where (state in ('completed', 'failed')) <> (finished_at is not null)

-- name: invariant_key_made_one_job
select count(*) from (
	select from jobs where idempotency_key is not null group by account_id, idempotency_key having count(*) > 1) j

-- name: invariant_ledger_is_guarded
select 1 - count(*) from pg_trigger where tgrelid = 'ledger'::regclass and tgname = 'ledger_append_only' and tgenabled = 'O'
