-- Admission in one round trip: the one transition with more than one outcome.
--
-- The guarded update decides over cap and balance: it waits for the account's
-- row and is evaluated again on the version it then finds. A count of running
-- jobs in the same statement would use the snapshot from before the wait, and
-- let more than the cap run. A refusal writes nothing, so it costs no flush.
--
-- Lock order: an old job whose key is released, then the account; the new job
-- is nobody else's yet.

-- +goose Up
-- +goose StatementBegin
create function admit(
    _id uuid, _account bigint, _task text, _cost bigint, _max_running integer, _message text,
    _input_type text, _input_size bigint, _input_width integer, _input_height integer,
    _key text, _hash bytea, _key_lifetime interval
) returns table (verdict text, job uuid, balance bigint, running integer, at timestamptz) language plpgsql as $$
declare
    _first record;
begin
    at := clock_timestamp();

    if _key is not null then
        select j.id, j.idempotency_hash is not distinct from _hash as same, j.created_at into _first
        from jobs j where j.account_id = _account and j.idempotency_key = _key;
        if found and _first.created_at > at - _key_lifetime then
            verdict := case when _first.same then 'replayed' else 'mismatch' end;
            job := _first.id;
            return next;
            return;
        elsif found then
            update jobs j set idempotency_key = null, idempotency_hash = null
            where j.id = _first.id and j.idempotency_key = _key;
        end if;
    end if;

    loop
        -- A look without a lock: what it refuses costs one read. It is not what
        -- admits.
        select a.balance, a.running, case
            when a.deleted_at is not null then 'deleted'
            when a.running >= _max_running then 'running'
            when a.balance < _cost then 'balance'
        end into balance, running, verdict
        from accounts a where a.id = _account;
        if not found then
            verdict := 'deleted';
        end if;

        if verdict is null then
            update accounts a set balance = a.balance - _cost, running = a.running + 1
            where a.id = _account and a.deleted_at is null and a.running < _max_running and a.balance >= _cost
            returning a.balance, a.running into balance, running;
            continue when not found; -- the account changed during the wait: look again
        end if;

        -- Meanwhile a request with the same key, or this very call whose answer
        -- was lost, may have been admitted. These statements have newer
        -- snapshots than the first look.
        select j.id, j.idempotency_hash is not distinct from _hash as same into _first from jobs j
        where j.account_id = _account and j.idempotency_key = _key or j.id = _id;
        exit when not found;

        if verdict is null then
            update accounts a set balance = a.balance + _cost, running = a.running - 1 where a.id = _account;
        end if;
        verdict := case when _first.same then 'replayed' else 'mismatch' end;
        job := _first.id;
        return next;
        return;
    end loop;

    if verdict is not null then
        return next;
        return;
    end if;

    insert into jobs (id, account_id, task, cost, message, input_type, input_size, input_width, input_height,
        idempotency_key, idempotency_hash, created_at, updated_at)
    values (_id, _account, _task, _cost, _message, _input_type, _input_size, _input_width, _input_height,
        _key, _hash, at, at);
    insert into ledger (account_id, job_id, kind, amount, balance_after)
    values (_account, _id, 'charge', -_cost, balance);
    verdict := 'admitted';
    job := _id;
    return next;
end $$;
-- +goose StatementEnd
