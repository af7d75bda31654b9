-- What operators need: an archive, and how much waits. What is delivered moves to
-- the archive after a while: what became of it and when, no longer what was sent.
-- Its event is not delivered once more for as long as it is there.
create table {schema}.webhook_archive (
    id bigint primary key,
    destination text collate "C" not null,
    event_id text collate "C" not null,
    event_type text,
    idempotency_key text not null,
    created_at timestamptz not null,
    finished_at timestamptz not null,
    attempts int not null,
    fence bigint not null,
    claimed_by text,
    outcome text,
    attempt_log jsonb not null,
    archived_at timestamptz not null default clock_timestamp(),
    unique (event_id, destination)
);

create index webhook_archive_finished on {schema}.webhook_archive (finished_at);

revoke all on {schema}.webhook_archive from public;

comment on table {schema}.webhook_archive is
    'Deliveries that arrived a while ago, without what was sent; see `walpost webhook prune`';
comment on column {schema}.webhook_archive.attempt_log is
    'What came of each attempt, the first one first; without answers';

-- By state: so that those that are failed are found and counted however many are held.
drop index {schema}.webhook_set_aside;
create index webhook_set_aside on {schema}.webhook_delivery (destination, state, id)
    where state in ('failed', 'held', 'unknown');

-- A delivery that is in the archive is there already: its insert does nothing. The
-- inserter needs no right on the archive.
create function {schema}.webhook_archived() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform from {schema}.webhook_archive a
        where a.event_id = new.event_id and a.destination = new.destination;
    if found then
        return null;
    end if;
    return new;
end $$;

create trigger webhook_archived before insert on {schema}.webhook_delivery
    for each row execute function {schema}.webhook_archived();

-- One that moves in that moment is in the unique index of neither table. It is in
-- the archive, or for an older snapshot still beside the new row. Each row by a
-- query of its own, so that no plan reads a whole table.
create function {schema}.webhook_moved() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    is_there boolean;
begin
    select bool_or((select true from {schema}.webhook_archive a
            where a.event_id = f.event_id and a.destination = f.destination limit 1))
        into is_there from fresh f;
    if is_there is not true and current_setting('transaction_isolation') <> 'read committed' then
        select bool_or((select true from {schema}.webhook_delivery d
                where d.event_id = f.event_id and d.destination = f.destination
                    and d.id <> f.id limit 1))
            into is_there from fresh f;
    end if;
    if is_there then
        raise exception 'a delivery has moved to the archive while it was created again; try again'
            using errcode = '40001';
    end if;
    return null;
end $$;

create trigger webhook_moved after insert on {schema}.webhook_delivery
    referencing new table as fresh
    for each statement execute function {schema}.webhook_moved();

-- What is not done of each destination, or of the one that is named: of each state
-- up to at_most, in the order of an index, whatever statistics say. Known are those
-- with a row, and up to 1,000 others for which something is pending. Whoever waits
-- for a first attempt waits since that was due.
create function {schema}.webhook_backlog(which text, at_most bigint)
returns table (
    name text, state text, reason text, changed_at timestamptz, pending bigint, sending bigint,
    failed bigint, held bigint, unknown bigint, oldest_pending_seconds float8
)
language sql stable rows 100
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
as $$
    with recursive found (name) as (
        (select d.destination from {schema}.webhook_delivery d where d.state = 'pending'
            order by d.destination limit 1)
        union all
        select (select d.destination from {schema}.webhook_delivery d
            where d.state = 'pending' and d.destination > f.name order by d.destination limit 1)
        from found f where f.name is not null
    ), names (name) as (
        select p.name from {schema}.webhook_destination p
        union
        select each.name from (
            select f.name from found f where f.name is not null limit 1000
        ) as each
    )
    select n.name, coalesce(p.state, 'new'), p.reason, p.changed_at, w.pending,
        (select count(*) from (select from {schema}.webhook_delivery d
            where d.destination = n.name and d.state = 'sending'
            order by d.lease_until limit at_most) as each),
        (select count(*) from (select from {schema}.webhook_delivery d
            where d.destination = n.name and d.state = 'failed'
            order by d.id limit at_most) as each),
        (select count(*) from (select from {schema}.webhook_delivery d
            where d.destination = n.name and d.state = 'held'
            order by d.id limit at_most) as each),
        (select count(*) from (select from {schema}.webhook_delivery d
            where d.destination = n.name and d.state = 'unknown'
            order by d.id limit at_most) as each),
        w.oldest
    from names n
    left join {schema}.webhook_destination p on p.name = n.name
    cross join lateral (
        select count(*) as pending,
            greatest(0, max(extract(epoch from now() - each.since)))::float8 as oldest
        from (
            select case when d.attempts = 0 then d.next_attempt_at else d.created_at end as since
            from {schema}.webhook_delivery d
            where d.destination = n.name and d.state = 'pending'
            order by d.next_attempt_at, d.id limit at_most
        ) as each
    ) as w
    where which is null or n.name = which
    order by n.name
$$;

-- What a role needs: reader (everything but what is sent, and answers), writer (who
-- creates deliveries), sender, operator, pruner. A reader loses whatever else it
-- had on the tables.
create or replace function {schema}.webhook_grant(kind text, grantee name)
returns void language plpgsql as $$
declare
    seen constant text := 'id, destination, event_id, event_type, idempotency_key, retry_limit, '
        'retry_wait_ms, created_at, state, attempts, fence, lease_until, claimed_by, '
        'next_attempt_at, finished_at, outcome';
    noted constant text := 'delivery, number, ended_at, outcome, status, elapsed_ms, detail';
    changed constant text := 'state, attempts, fence, lease_until, claimed_by, next_attempt_at, '
        'finished_at, outcome';
    place text;
    deliveries text;
    attempts text;
    destinations text;
    archive text;
    granted text;
begin
    select t.typnamespace::regnamespace::text, t.typrelid::regclass::text
        into place, deliveries
        from pg_catalog.pg_type t where t.oid = pg_typeof(null::{schema}.webhook_delivery);
    select t.typrelid::regclass::text into attempts
        from pg_catalog.pg_type t where t.oid = pg_typeof(null::{schema}.webhook_attempt);
    select t.typrelid::regclass::text into destinations
        from pg_catalog.pg_type t where t.oid = pg_typeof(null::{schema}.webhook_destination);
    select t.typrelid::regclass::text into archive
        from pg_catalog.pg_type t where t.oid = pg_typeof(null::{schema}.webhook_archive);
    granted := case kind
        when 'reader' then format('select (%s)', seen)
        when 'writer' then
            'insert (destination, event_id, event_type, idempotency_key, path, content_type, body, '
            'retry_limit, retry_wait_ms, next_attempt_at), select (id, event_id, destination, state)'
        when 'sender' then format('select, update (%s)', changed)
        when 'operator' then format('select (%s), update (%s)', seen, changed)
        when 'pruner' then format('select (%s), update (body), delete', seen)
    end;
    if granted is null then
        raise exception 'no kind of role is %; it is reader, writer, sender, operator or pruner',
            kind;
    end if;
    if kind = 'reader' then
        execute format('revoke all on %s, %s, %s, %s from %I', deliveries, attempts, destinations,
            archive, grantee);
    end if;
    execute format('grant usage on schema %s to %I', place, grantee);
    execute format('grant %s on %s to %I', granted, deliveries, grantee);
    execute format('grant select on %s to %I', destinations, grantee);
    if kind in ('sender', 'operator') then
        execute format('grant insert, update on %s to %I', destinations, grantee);
    end if;
    if kind = 'sender' then
        execute format('grant select, insert on %s to %I', attempts, grantee);
    elsif kind <> 'writer' then
        execute format('grant select (%s) on %s to %I', noted, attempts, grantee);
    end if;
    if kind <> 'writer' then
        execute format('grant select on %s to %I', archive, grantee);
    end if;
    if kind = 'pruner' then
        -- A lock on rows asks for an update of some column.
        execute format('grant insert, update (archived_at), delete on %s to %I', archive, grantee);
    end if;
end $$;
