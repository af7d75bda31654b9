-- Deliveries that go one after the other: all of a destination, or those of each
-- order key. Whoever creates one says its key; without it the delivery has no order.
alter table {schema}.webhook_delivery
    add column order_key text collate "C",
    add column blocked_by bigint,
    -- Rows from before have none.
    add constraint webhook_delivery_order_key_check
        check (octet_length(order_key) <= 512) not valid;

alter table {schema}.webhook_destination
    add column ordering text not null default 'none' check (ordering in ('none', 'key', 'all')),
    add column failed_are_passed boolean not null default false,
    add column cursor_id bigint not null default 0;

comment on column {schema}.webhook_delivery.order_key is
    'Those with the same one go to their destination in the order of their ids';
comment on column {schema}.webhook_delivery.blocked_by is
    'While pending: one before it that is not done, as a sender has found; it is not due meanwhile';
comment on column {schema}.webhook_destination.ordering is
    'What goes in order, as its sender is configured';
comment on column {schema}.webhook_destination.failed_are_passed is
    'Whether a delivery that failed lets those behind it go';
comment on column {schema}.webhook_destination.cursor_id is
    'Where all go in order: up to this id nothing is to be sent but what webhook_sent_again has';

-- What those behind it wait for. One that is delivered, or given up by somebody, is in
-- neither, and one without an order key never.
create index webhook_order on {schema}.webhook_delivery (destination, order_key, id)
    where order_key is not null and state in ('pending', 'sending', 'held', 'unknown');
create index webhook_order_failed on {schema}.webhook_delivery (destination, order_key, id)
    where order_key is not null and state = 'failed' and outcome is distinct from 'settled';
create index webhook_blocked on {schema}.webhook_delivery (destination, blocked_by, id)
    where blocked_by is not null;
-- What is to get an order where all go in one.
create index webhook_unordered on {schema}.webhook_delivery (destination, id)
    where order_key is distinct from '' and state in ('pending', 'failed', 'held', 'unknown');

-- Where all go in order: what was passed and is sent again. The next claim begins at it.
-- Rows of their own, as nobody waits for a transaction that inserts one.
create table {schema}.webhook_sent_again (
    destination text collate "C" not null,
    delivery bigint not null
);
create index webhook_sent_again_destination on {schema}.webhook_sent_again (destination);
revoke all on {schema}.webhook_sent_again from public;
comment on table {schema}.webhook_sent_again is
    'Deliveries behind the cursor that are to be sent again, until a claim has seen it';

-- The second key of the lock under which deliveries of an order key are numbered: 256
-- for each destination, so that many keys in one transaction take few locks.
create function {schema}.webhook_order_lock(destination text, order_key text) returns int
    language sql immutable parallel safe
    as $$ select (hashtext(destination) & -256) | (hashtext(order_key) & 255) $$;

-- The order key of a delivery that is created: where all go in order that is the empty
-- one, which nobody else may say. One that has a key gets its number under a lock that is
-- held until the transaction ends, so no number comes to light behind a larger one of the
-- same key. Runs behind webhook_archived and webhook_guard, whose names come first. The
-- inserter needs no right on the other tables.
create function {schema}.webhook_numbered() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from {schema}.webhook_destination p
        where p.name = new.destination and p.ordering = 'all')
    then
        new.order_key := '';
    elsif new.order_key = '' then
        raise exception 'an order key has one byte at least' using errcode = 'WP010';
    end if;
    if new.order_key is not null then
        perform pg_advisory_xact_lock(hashtext('walpost.webhook_order'),
            {schema}.webhook_order_lock(new.destination, new.order_key));
        new.id := nextval(pg_get_serial_sequence(
            format('%I.%I', tg_table_schema, tg_table_name), 'id')::regclass);
    end if;
    return new;
end $$;

create trigger webhook_numbered before insert on {schema}.webhook_delivery
    for each row execute function {schema}.webhook_numbered();

-- The one table of transitions.
create or replace function {schema}.webhook_guard() returns trigger language plpgsql as $$
declare
    moment constant timestamptz := clock_timestamp();
    step text;
begin
    if tg_op = 'INSERT' then
        if new.state <> 'pending' or new.attempts <> 0 or new.fence <> 0
            or new.claimed_by is not null or new.outcome is not null or new.body is null
            or new.next_attempt_at is null or new.blocked_by is not null
        then
            raise exception 'a delivery begins as pending, with its body' using errcode = 'WP010';
        end if;
        new.created_at := moment;
        -- Pending for a disabled destination as well: by the time that this commits it
        -- may be enabled, and nobody would release it. It is not claimed meanwhile.
        return new;
    end if;
    if tg_op = 'DELETE' then
        if old.state not in ('delivered', 'failed') then
            raise exception 'a delivery that is % may not leave', old.state using errcode = 'WP012';
        end if;
        return old;
    end if;
    if (new.id, new.destination, new.event_id, new.event_type, new.idempotency_key, new.path,
            new.content_type, new.retry_limit, new.retry_wait_ms, new.created_at)
        is distinct from
        (old.id, old.destination, old.event_id, old.event_type, old.idempotency_key, old.path,
            old.content_type, old.retry_limit, old.retry_wait_ms, old.created_at)
        -- Where all go in order, what is there already goes with them.
        or new.order_key is distinct from old.order_key and new.order_key is distinct from ''
    then
        raise exception 'what is delivered does not change' using errcode = 'WP010';
    end if;
    step := old.state || ' to ' || new.state;
    case
    when new.order_key is distinct from old.order_key then
        if new.state <> old.state or (new.attempts, new.fence, new.lease_until, new.finished_at)
            is distinct from (old.attempts, old.fence, old.lease_until, old.finished_at)
        then
            raise exception 'a delivery gets its order by itself' using errcode = 'WP010';
        end if;
        if new.state in ('delivered', 'failed') then
            return new;
        end if;
    when step = 'pending to sending'
        and old.next_attempt_at <= moment and new.lease_until > moment
        and new.fence = old.fence + 1 and new.attempts = old.attempts + 1
    then
        null;
    when step in ('sending to delivered', 'sending to failed', 'sending to pending',
            'sending to unknown', 'sending to held')
        and new.fence = old.fence and new.attempts = old.attempts
        and new.outcome is not null
    then
        null;
    -- Claimed and not sent: that claim does not count, and leaves no trace but its fence.
    when step = 'sending to pending'
        and new.fence = old.fence and new.attempts = old.attempts - 1
        and new.outcome is not distinct from old.outcome
    then
        null;
    when step in ('pending to held', 'held to pending', 'pending to pending')
        and new.fence = old.fence and new.attempts = old.attempts
    then
        null;
    -- By somebody who has looked.
    when step in ('failed to pending', 'unknown to pending', 'held to pending')
        and new.fence = old.fence and new.attempts = 0
    then
        null;
    when step in ('unknown to delivered', 'unknown to failed', 'held to failed')
        and new.fence = old.fence and new.attempts = old.attempts
    then
        null;
    -- Given up by somebody, so that those behind it go.
    when step = 'failed to failed' and new.outcome = 'settled'
        and (new.finished_at, new.attempts, new.fence, new.claimed_by)
            is not distinct from (old.finished_at, old.attempts, old.fence, old.claimed_by)
    then
        return new;
    when step = 'delivered to delivered'
        and (new.finished_at, new.attempts, new.fence, new.claimed_by, new.outcome)
            is not distinct from
            (old.finished_at, old.attempts, old.fence, old.claimed_by, old.outcome)
    then
        return new;
    else
        raise exception 'a delivery does not go from % this way', step using errcode = 'WP010';
    end case;
    if new.state <> 'sending' then
        new.lease_until := null;
    end if;
    if new.state <> 'pending' then
        new.next_attempt_at := null;
        new.blocked_by := null;
    elsif new.blocked_by is not null then
        if new.order_key is null or new.blocked_by >= new.id then
            raise exception 'a delivery is blocked by an earlier one of its order key'
                using errcode = 'WP010';
        end if;
        -- It is not due while nobody has let it go.
        new.next_attempt_at := 'infinity';
    elsif old.blocked_by is not null and new.next_attempt_at = 'infinity' then
        new.next_attempt_at := moment;
    end if;
    new.finished_at := case when new.state in ('delivered', 'failed') then moment end;
    return new;
end $$;

-- Those that were found behind it are due once it is done. Whoever finds one behind
-- another locks that one first, so that none is missed: this statement sees what was
-- committed while its transaction waited, if that is read committed. What it does not see,
-- or somebody has locked, senders find as they look whether what is waited for is done.
create function {schema}.webhook_let_go() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    update {schema}.webhook_delivery d set blocked_by = null
        where d.id in (select b.id from {schema}.webhook_delivery b
            where b.destination = old.destination and b.blocked_by = old.id
            for update skip locked);
    return null;
end $$;

create trigger webhook_let_go after update on {schema}.webhook_delivery for each row
    when (new.order_key is not null and new.state in ('delivered', 'failed')
        and (new.state, new.outcome) is distinct from (old.state, old.outcome))
    execute function {schema}.webhook_let_go();
create trigger webhook_let_go_of_deleted after delete on {schema}.webhook_delivery for each row
    when (old.order_key is not null and old.state = 'failed')
    execute function {schema}.webhook_let_go();

-- Whoever claims may be passing it now, and does not see this transaction: so it is not
-- the cursor that goes back here.
create function {schema}.webhook_again() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    insert into {schema}.webhook_sent_again (destination, delivery)
        values (new.destination, new.id);
    return null;
end $$;

create trigger webhook_again after update on {schema}.webhook_delivery for each row
    when (new.order_key = '' and old.state = 'failed' and new.state = 'pending')
    execute function {schema}.webhook_again();

-- The first delivery of an order key that is not done. By the order of an index, which
-- no statistics turn into another plan.
create function {schema}.webhook_head(place text, key text, passes_failed boolean)
returns bigint language sql stable as $$
    select min(each.id) from (
        (select first.id from (
            select d.id, d.destination, d.order_key from {schema}.webhook_delivery d
            where (d.destination, d.order_key, d.id) > (place, key, 0::bigint)
                and d.order_key is not null and d.state in ('pending', 'sending', 'held', 'unknown')
            order by d.destination, d.order_key, d.id limit 1
        ) as first where first.destination = place and first.order_key = key)
        union all
        (select first.id from (
            select d.id, d.destination, d.order_key from {schema}.webhook_delivery d
            where (d.destination, d.order_key, d.id) > (place, key, 0::bigint)
                and d.order_key is not null and d.state = 'failed'
                and d.outcome is distinct from 'settled'
                and not passes_failed
            order by d.destination, d.order_key, d.id limit 1
        ) as first where first.destination = place and first.order_key = key)
    ) as each
$$;

-- What a pending delivery waits for, by what its destination says of itself; null where
-- it is behind no other one.
create function {schema}.webhook_waits_for(place text, key text, delivery bigint)
returns bigint language sql stable as $$
    select nullif(least({schema}.webhook_head(place, key, p.failed_are_passed), delivery), delivery)
    from {schema}.webhook_destination p where p.name = place and p.ordering <> 'none'
$$;

-- First attempts and retries are found apart, so that neither is looked for among the
-- others.
drop index {schema}.webhook_due;
create index webhook_due on {schema}.webhook_delivery
    (destination, (least(attempts, 1)), next_attempt_at, id)
    where state = 'pending';

drop function {schema}.webhook_backlog(text, bigint);

-- What is not done of each destination, or of the one that is named: of each state
-- up to at_most, in the order of an index, whatever statistics say. Known are those
-- with a row, and up to 1,000 others for which something is pending. Whoever waits
-- for a first attempt waits since that was due, and who is blocked since it was
-- created. By key those are blocked that a sender has looked at, as it does with what
-- is due.
create function {schema}.webhook_backlog(which text, at_most bigint)
returns table (
    name text, state text, reason text, changed_at timestamptz, pending bigint, sending bigint,
    failed bigint, held bigint, unknown bigint, oldest_pending_seconds float8, ordering text,
    blocked bigint
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
        w.oldest, coalesce(p.ordering, 'none'),
        case p.ordering
            when 'key' then (select count(*) from (select from {schema}.webhook_delivery d
                where d.destination = n.name and d.blocked_by is not null
                order by d.blocked_by limit at_most) as each)
            -- All that are pending but the head.
            when 'all' then greatest(0, w.pending - (select count(*)
                from {schema}.webhook_delivery h where h.state = 'pending'
                and h.id = {schema}.webhook_head(n.name, '', p.failed_are_passed)))
            else 0
        end
    from names n
    left join {schema}.webhook_destination p on p.name = n.name
    cross join lateral (
        select count(*) as pending,
            greatest(0, max(extract(epoch from now() - each.since)))::float8 as oldest
        from (
            (select d.created_at as since
            from {schema}.webhook_delivery d
            where d.destination = n.name and d.state = 'pending' and least(d.attempts, 1) = 1
            order by d.next_attempt_at, d.id limit at_most)
            union all
            (select case when d.next_attempt_at < 'infinity'
                then d.next_attempt_at else d.created_at end
            from {schema}.webhook_delivery d
            where d.destination = n.name and d.state = 'pending' and least(d.attempts, 1) = 0
            order by d.next_attempt_at, d.id limit at_most)
            limit at_most
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
        'next_attempt_at, finished_at, outcome, order_key, blocked_by';
    noted constant text := 'delivery, number, ended_at, outcome, status, elapsed_ms, detail';
    changed constant text := 'state, attempts, fence, lease_until, claimed_by, next_attempt_at, '
        'finished_at, outcome, blocked_by';
    again text;
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
    select t.typrelid::regclass::text into again
        from pg_catalog.pg_type t where t.oid = pg_typeof(null::{schema}.webhook_sent_again);
    granted := case kind
        when 'reader' then format('select (%s)', seen)
        when 'writer' then
            'insert (destination, event_id, event_type, idempotency_key, path, content_type, body, '
            'retry_limit, retry_wait_ms, next_attempt_at, order_key), '
            'select (id, event_id, destination, state)'
        when 'sender' then format('select, update (%s, order_key)', changed)
        when 'operator' then format('select (%s), update (%s)', seen, changed)
        when 'pruner' then format('select (%s), update (body), delete', seen)
    end;
    if granted is null then
        raise exception 'no kind of role is %; it is reader, writer, sender, operator or pruner',
            kind;
    end if;
    if kind = 'reader' then
        execute format('revoke all on %s, %s, %s, %s, %s from %I', deliveries, attempts,
            destinations, archive, again, grantee);
    end if;
    execute format('grant usage on schema %s to %I', place, grantee);
    execute format('grant %s on %s to %I', granted, deliveries, grantee);
    execute format('grant select on %s to %I', destinations, grantee);
    if kind in ('sender', 'operator') then
        execute format('grant insert, update on %s to %I', destinations, grantee);
    end if;
    if kind = 'sender' then
        execute format('grant select, insert on %s to %I', attempts, grantee);
        execute format('grant select, delete on %s to %I', again, grantee);
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
