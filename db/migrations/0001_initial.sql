-- Money is in milli-Points (0.1 Point is 100), times are the database's own
-- clock, and every rule that one row can break is a constraint here: the code
-- may be wrong, the books may not.

-- +goose Up
create table accounts (
    id         bigint generated always as identity primary key,
    name       text        not null check (length(name) between 1 and 200),
    vip        boolean     not null default false,
    balance    bigint      not null default 0 check (balance >= 0),
    running    integer     not null default 0 check (running between 0 and 5), -- queued and processing jobs, counted by the transitions
    keys       integer     not null default 0 check (keys between 0 and 5),    -- keys that are not revoked, counted likewise
    created_at timestamptz not null default clock_timestamp(),
    deleted_at timestamptz
) with (fillfactor = 50); -- room for the new row version beside the old: every job updates its account twice

-- A deleted account frees its name.
create unique index accounts_name on accounts (name) where deleted_at is null;

create table api_keys (
    id         bigint generated always as identity primary key,
    account_id bigint      not null references accounts,
    hash       bytea       not null check (octet_length(hash) = 32) constraint api_keys_hash unique, -- SHA-256 of the key; the key itself is nowhere
    hint       text        not null, -- prefix and last four characters
    name       text        not null default '',
    created_at timestamptz not null default clock_timestamp(),
    revoked_at timestamptz
);

create index api_keys_account on api_keys (account_id);

create table jobs (
    id         uuid    primary key, -- version 7, made by the API before the transaction: an unknown commit is resolved by reading it
    account_id bigint  not null references accounts,
    task       text    not null,
    state      text    not null default 'queued' check (state in ('queued', 'processing', 'completed', 'failed')),
    progress   integer not null default 0 check (progress between 0 and 100),
    message    text    not null default '',
    cost       bigint  not null check (cost > 0), -- stays after a refund
    refunded   boolean not null default false,

    fence        bigint  not null default 0 check (fence >= 0), -- how often the job was claimed
    lapses       integer not null default 0 check (lapses >= 0), -- how many of those claims came to nothing: the lease ran out, or an error ended it
    lease_until  timestamptz, -- null while processing: the worker gave the job back
    heartbeat_at timestamptz,
    enqueued_at  timestamptz, -- last confirmed publish; null: no client was ever told of the job

    input_type   text    not null,
    input_size   bigint  not null check (input_size > 0),
    input_width  integer not null check (input_width > 0),
    input_height integer not null check (input_height > 0),

    result_fence bigint, -- the claim that wrote the published result
    result_token text,
    result_type  text,
    result_size  bigint,

    idempotency_key  text check (length(idempotency_key) between 1 and 255),
    idempotency_hash bytea, -- of the request that the key belongs to

    created_at        timestamptz not null default clock_timestamp(),
    updated_at        timestamptz not null default clock_timestamp(),
    finished_at       timestamptz,
    input_deleted_at  timestamptz,
    result_deleted_at timestamptz,

    constraint jobs_failed_is_refunded check (refunded = (state = 'failed')),
    constraint jobs_final_is_finished check ((state in ('completed', 'failed')) = (finished_at is not null)),
    constraint jobs_completed_has_result check (
        case when state = 'completed'
            then num_nulls(result_fence, result_token, result_type, result_size) = 0 and progress = 100
            else num_nonnulls(result_fence, result_token, result_type, result_size) = 0
        end),
    constraint jobs_result_is_of_the_last_claim check (result_fence = fence),
    constraint jobs_claimed_has_fence check (state not in ('processing', 'completed') or fence > 0),
    constraint jobs_processing_has_heartbeat check (state <> 'processing' or heartbeat_at is not null),
    constraint jobs_key_has_hash check ((idempotency_key is null) = (idempotency_hash is null))
) with (fillfactor = 70); -- no index names a column that claims, heartbeats and publishes change: they stay HOT

create unique index jobs_idempotency_key on jobs (account_id, idempotency_key) where idempotency_key is not null;
create unique index jobs_result_token on jobs (result_token) where result_token is not null;
create index jobs_account on jobs (account_id, created_at);
create index jobs_unfinished on jobs (created_at) where finished_at is null;
create index jobs_inputs on jobs (finished_at) where finished_at is not null and input_deleted_at is null;
create index jobs_results on jobs (finished_at) where finished_at is not null and result_token is not null and result_deleted_at is null;

create table ledger (
    id            bigint generated always as identity primary key, -- rises with time within an account: given out under the account's row lock
    account_id    bigint      not null references accounts,
    job_id        uuid        references jobs,
    kind          text        not null check (kind in ('charge', 'refund', 'credit')),
    amount        bigint      not null check (amount <> 0), -- signed
    balance_after bigint      not null check (balance_after >= 0),
    note          text        not null default '',
    created_at    timestamptz not null default clock_timestamp(),

    constraint ledger_once_per_job unique (job_id, kind),
    constraint ledger_kind_has_sign check (
        case kind
            when 'charge' then amount < 0 and job_id is not null
            when 'refund' then amount > 0 and job_id is not null
            else job_id is null
        end)
);

create index ledger_account on ledger (account_id, id);

-- +goose StatementBegin
create function refuse_to_rewrite_the_ledger() returns trigger language plpgsql as $$
begin
    raise exception 'the ledger is append-only: correct it with a credit' using errcode = 'restrict_violation';
end $$;
-- +goose StatementEnd

create trigger ledger_append_only before update or delete or truncate on ledger
    for each statement execute function refuse_to_rewrite_the_ledger();

-- Workers that gave a sign of life. A queued job is given up only when no
-- worker of its task has been seen for as long.
create table workers (
    id      text        primary key,
    tasks   text[]      not null,
    seen_at timestamptz not null
);

-- Turns for work that one process at a time should do. Rows instead of advisory
-- locks: a transaction-pooling pgbouncer keeps no session to hold those.
create table turns (
    name       text        primary key,
    holder     text        not null,
    held_until timestamptz not null
);
