-- Requests under idempotency keys, and what was answered to them.
--
-- A request in transactional mode is here once its own transaction has
-- committed, with its response; until then an advisory lock of that transaction
-- stands for it. A request in leased mode is here from its claim on.
--
-- WP030: the claim was given up. WP031: the handler ended its transaction.
create table {schema}.idempotency (
    lookup bytea primary key check (octet_length(lookup) = 32),
    route text not null check (octet_length(route) between 1 and 200),
    fingerprint bytea not null check (octet_length(fingerprint) = 32),
    status text not null check (status in ('in_progress', 'completed', 'tombstone')),
    created_at timestamptz not null default now(),
    completed_at timestamptz,
    expires_at timestamptz,
    gone_until timestamptz,
    -- never twice the same one: whoever holds another one has given the claim up
    fence bigint not null default 0,
    lease_until timestamptz,
    recovery_point text check (octet_length(recovery_point) between 1 and 200),
    response_status int check (response_status between 0 and 999),
    header_names text[],
    header_values bytea[],
    body bytea,
    check ((status = 'in_progress') = (lease_until is not null)),
    check (status = 'in_progress' or (completed_at is not null and expires_at is not null)),
    check (num_nonnulls(response_status, header_names, header_values, body)
        = case status when 'completed' then 4 else 0 end)
) with (fillfactor = 90);

create sequence {schema}.idempotency_fence;

-- What may leave, and which responses may.
create index idempotency_leaves on {schema}.idempotency ((coalesce(gone_until, expires_at)));
create index idempotency_expires on {schema}.idempotency (expires_at)
    where status = 'completed' and gone_until is not null;

-- Responses are in it: for its owner, and for whom idempotency_grant names.
revoke all on {schema}.idempotency from public;

comment on table {schema}.idempotency is
    'Requests under idempotency keys with their responses; see `walpost idempotency`';
comment on column {schema}.idempotency.lookup is
    'SHA-256 of principal, route and key, of which none can be read back';
comment on column {schema}.idempotency.fingerprint is
    'SHA-256 of the request, by which a retry is told from another one';
comment on column {schema}.idempotency.expires_at is
    'Then the response is replayed no more; null where an operator has to look first';
comment on column {schema}.idempotency.gone_until is
    'How long the key is answered with 410 after that; null: the request is new';
comment on column {schema}.idempotency.lease_until is
    'While in progress: then the claim may be taken over';
comment on column {schema}.idempotency.recovery_point is
    'How far a request in leased mode has committed its work';

-- One row: whether nobody else has the key at this moment, the time, and what is
-- stored. Keeps the key to this transaction until its end. A twin is not waited
-- for; what is stored and has not expired is so for everybody. Bounds how long a
-- session that is paused can keep a key.
create function {schema}.idempotency_look(k bytea, statement_ms bigint, idle_ms bigint)
returns table (
    is_free boolean, moment timestamptz, fingerprint bytea, status text, lease_until timestamptz,
    recovery_point text, expires_at timestamptz, gone_until timestamptz, response_status int,
    header_names text[], header_values bytea[], body bytea
) language plpgsql as $$
declare
    mine constant boolean := pg_try_advisory_xact_lock(
        hashtextextended('walpost idempotency ' || encode(k, 'hex'), 0));
begin
    if mine then
        perform set_config('walpost.idempotency', encode(k, 'hex'), true),
            set_config('idle_in_transaction_session_timeout', idle_ms::text, true);
        if statement_ms is not null and current_setting('statement_timeout') = '0' then
            perform set_config('statement_timeout', statement_ms::text, true);
        end if;
    end if;
    -- Behind the lock, so that it sees what a twin has committed under it.
    return query
        select mine, clock_timestamp(), i.fingerprint, i.status, i.lease_until,
            i.recovery_point, i.expires_at, i.gone_until, i.response_status,
            i.header_names, i.header_values, i.body
        from (select) one left join {schema}.idempotency i on i.lookup = k;
end $$;

-- Whether a row stands in nobody's way: what it was about has expired, or its
-- lease has ended.
create function {schema}.idempotency_yields(i {schema}.idempotency) returns boolean
language sql stable as $$
    select case i.status
        when 'in_progress' then i.lease_until <= clock_timestamp()
        else i.expires_at <= clock_timestamp()
    end
$$;

-- Last of a transaction that began with idempotency_look.
create function {schema}.idempotency_complete(
    k bytea, print bytea, of_route text, code int, names text[], contents bytea[], answer bytea,
    ttl_ms bigint, gone_ms bigint
) returns void language plpgsql as $$
declare
    expiry constant timestamptz := clock_timestamp() + ttl_ms * interval '1 ms';
begin
    if coalesce(current_setting('walpost.idempotency', true), '') <> encode(k, 'hex') then
        raise exception 'the handler ended the transaction' using errcode = 'WP031';
    end if;
    insert into {schema}.idempotency as i (lookup, route, fingerprint, status, completed_at,
        expires_at, gone_until, response_status, header_names, header_values, body)
    values (k, of_route, print, 'completed', clock_timestamp(), expiry,
        expiry + gone_ms * interval '1 ms', code, names, contents, answer)
    on conflict (lookup) do update set
        route = excluded.route, fingerprint = excluded.fingerprint, status = excluded.status,
        created_at = excluded.created_at, completed_at = excluded.completed_at,
        expires_at = excluded.expires_at, gone_until = excluded.gone_until, lease_until = null,
        recovery_point = null, response_status = excluded.response_status,
        header_names = excluded.header_names, header_values = excluded.header_values,
        body = excluded.body
    where {schema}.idempotency_yields(i);
    if not found then
        raise exception 'the claim was given up' using errcode = 'WP030';
    end if;
end $$;

-- Claims under a lease, in a transaction that began with idempotency_look; the
-- fence. Whoever has its row locked is at work on it, and is not waited for.
create function {schema}.idempotency_take(
    k bytea, print bytea, of_route text, lease_ms bigint, ttl_ms bigint, resumes boolean
) returns bigint language plpgsql as $$
declare
    given bigint;
begin
    perform from {schema}.idempotency i where i.lookup = k for no key update nowait;
    insert into {schema}.idempotency as i (lookup, route, fingerprint, status, expires_at, fence,
        lease_until)
    values (k, of_route, print, 'in_progress', clock_timestamp() + ttl_ms * interval '1 ms',
        nextval('{schema}.idempotency_fence'), clock_timestamp() + lease_ms * interval '1 ms')
    on conflict (lookup) do update set
        route = excluded.route, fingerprint = excluded.fingerprint, status = excluded.status,
        created_at = excluded.created_at, completed_at = null, expires_at = excluded.expires_at,
        gone_until = null, fence = excluded.fence, lease_until = excluded.lease_until,
        recovery_point = case when resumes then i.recovery_point end, response_status = null,
        header_names = null, header_values = null, body = null
    where {schema}.idempotency_yields(i)
    returning i.fence into given;
    if not found then
        raise exception 'the claim was given up' using errcode = 'WP030';
    end if;
    return given;
end $$;

-- First of a transaction of a run under a lease: nobody takes the claim over
-- before that transaction has ended.
create function {schema}.idempotency_hold(k bytea, f bigint, lease_ms bigint) returns void
language plpgsql as $$
begin
    update {schema}.idempotency i
        set lease_until = greatest(i.lease_until, clock_timestamp() + lease_ms * interval '1 ms')
        where i.lookup = k and i.fence = f and i.status = 'in_progress';
    if not found then
        raise exception 'the claim was given up' using errcode = 'WP030';
    end if;
    perform set_config('walpost.idempotency', encode(k, 'hex'), true),
        set_config('idle_in_transaction_session_timeout', lease_ms::text, true);
end $$;

-- How far a run has come, with what else its transaction has done.
create function {schema}.idempotency_reach(k bytea, f bigint, point text) returns void
language plpgsql as $$
begin
    if coalesce(current_setting('walpost.idempotency', true), '') <> encode(k, 'hex') then
        raise exception 'the handler ended the transaction' using errcode = 'WP031';
    end if;
    update {schema}.idempotency i set recovery_point = coalesce(point, i.recovery_point)
        where i.lookup = k and i.fence = f and i.status = 'in_progress';
    if not found then
        raise exception 'the claim was given up' using errcode = 'WP030';
    end if;
end $$;

-- The end of a run under a lease.
create function {schema}.idempotency_finish(
    k bytea, f bigint, code int, names text[], contents bytea[], answer bytea, ttl_ms bigint,
    gone_ms bigint
) returns void language plpgsql as $$
declare
    expiry constant timestamptz := clock_timestamp() + ttl_ms * interval '1 ms';
begin
    update {schema}.idempotency i set status = 'completed', completed_at = clock_timestamp(),
            expires_at = expiry, gone_until = expiry + gone_ms * interval '1 ms',
            lease_until = null, response_status = code, header_names = names,
            header_values = contents, body = answer
        where i.lookup = k and i.fence = f and i.status = 'in_progress';
    if not found then
        raise exception 'the claim was given up' using errcode = 'WP030';
    end if;
end $$;

-- What a role needs: application, reader (everything but responses, and hashes
-- by which requests could be guessed), pruner, operator. A reader loses whatever
-- else it had on the table.
create function {schema}.idempotency_grant(kind text, grantee name) returns void
language plpgsql as $$
declare
    seen constant text := 'lookup, route, status, created_at, completed_at, expires_at, '
        'gone_until, fence, lease_until, recovery_point, response_status';
    place text;
    idempotency text;
    granted text;
begin
    select t.typnamespace::regnamespace::text, t.typrelid::regclass::text
        into place, idempotency
        from pg_catalog.pg_type t where t.oid = pg_typeof(null::{schema}.idempotency);
    granted := case kind
        when 'application' then 'select, insert, update'
        when 'reader' then format('select (%s)', seen)
        when 'pruner' then format('select (%s), update (status, response_status, header_names, '
            'header_values, body), delete', seen)
        when 'operator' then format('select (%s), update (lease_until), delete', seen)
    end;
    if granted is null then
        raise exception 'no kind of role is %; it is application, reader, pruner or operator', kind;
    end if;
    if kind = 'reader' then
        execute format('revoke all on %s from %I', idempotency, grantee);
    end if;
    execute format('grant usage on schema %s to %I', place, grantee);
    execute format('grant %s on %s to %I', granted, idempotency, grantee);
    if kind = 'application' then
        execute format('grant usage on sequence %s.idempotency_fence to %I', place, grantee);
    end if;
end $$;
