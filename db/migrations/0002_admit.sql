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
    _first    record;
    _deleted  timestamptz;
    _admitted boolean;
begin
    at := clock_timestamp();

    if _key is not null then
        select j.id, j.idempotency_hash as hash, j.created_at into _first
        from jobs j where j.account_id = _account and j.idempotency_key = _key;
        if found and _first.created_at > at - _key_lifetime then
            verdict := case when _first.hash = _hash then 'replayed' else 'mismatch' end;
            job := _first.id;
            return next;
            return;
        elsif found then
            update jobs j set idempotency_key = null, idempotency_hash = null
            where j.id = _first.id and j.idempotency_key = _key;
        end if;
    end if;

    loop
        update accounts a set balance = a.balance - _cost, running = a.running + 1
        where a.id = _account and a.deleted_at is null and a.running < _max_running and a.balance >= _cost
        returning a.balance, a.running into balance, running;
        _admitted := found;

        -- A request with the same key may have been admitted while this one
        -- waited for the account. This statement has a newer snapshot.
        if _key is not null then
            select j.id, j.idempotency_hash as hash into _first
            from jobs j where j.account_id = _account and j.idempotency_key = _key;
            if found then
                if _admitted then
                    update accounts a set balance = a.balance + _cost, running = a.running - 1 where a.id = _account;
                end if;
                verdict := case when _first.hash = _hash then 'replayed' else 'mismatch' end;
                job := _first.id;
                return next;
                return;
            end if;
        end if;

        exit when _admitted;

        -- This very call may have been carried out before, its answer lost.
        perform from jobs j where j.id = _id;
        if found then
            verdict := 'replayed';
            job := _id;
            return next;
            return;
        end if;

        select a.balance, a.running, a.deleted_at into balance, running, _deleted from accounts a where a.id = _account;
        verdict := case
            when not found or _deleted is not null then 'deleted'
            when running >= _max_running then 'running'
            when balance < _cost then 'balance'
        end;
        if verdict is not null then
            return next;
            return;
        end if;
        -- Something was given back between the two statements: try again.
    end loop;

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
