-- Events of two tables may have one id: a delivery is known by the id of its event,
-- the source of that, and the destination. The source is empty where the id is
-- globally unique, as in docs/identity.md, and where an application gives none.
alter table {schema}.webhook_delivery
    add column source text collate "C" not null default '' check (octet_length(source) <= 1000),
    drop constraint webhook_delivery_event_id_destination_key,
    add unique (event_id, destination, source);
alter table {schema}.webhook_archive
    add column source text collate "C" not null default '',
    drop constraint webhook_archive_event_id_destination_key,
    add unique (event_id, destination, source);

comment on column {schema}.webhook_delivery.source is
    'Id space of the event''s table, or its topic; empty where the id is globally unique';

create or replace function {schema}.webhook_archived() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform from {schema}.webhook_archive a
        where a.event_id = new.event_id and a.destination = new.destination
            and a.source = new.source;
    if found then
        return null;
    end if;
    return new;
end $$;

create or replace function {schema}.webhook_moved() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    is_there boolean;
begin
    select bool_or((select true from {schema}.webhook_archive a
            where a.event_id = f.event_id and a.destination = f.destination
                and a.source = f.source limit 1))
        into is_there from fresh f;
    if is_there is not true and current_setting('transaction_isolation') <> 'read committed' then
        select bool_or((select true from {schema}.webhook_delivery d
                where d.event_id = f.event_id and d.destination = f.destination
                    and d.source = f.source and d.id <> f.id limit 1))
            into is_there from fresh f;
    end if;
    if is_there then
        raise exception 'a delivery has moved to the archive while it was created again; try again'
            using errcode = '40001';
    end if;
    return null;
end $$;

-- Marks that are made again are those of one source as well.
alter table {schema}.webhook_mark_again
    add column source text collate "C" not null default '';

-- One statement for each outbox. $1: events, by id and source; those come back whose rows it
-- has changed.
create or replace function {schema}.webhook_mark_statement(m {schema}.webhook_mark) returns text
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    id_type text;
    status_type text;
    more text := '';
    deliveries text;
    spaces regclass;
    space uuid;
    is_in_header boolean;
    own text := 'true';
begin
    select t.typrelid::regclass::text into deliveries
        from pg_catalog.pg_type t where t.oid = pg_typeof(null::{schema}.webhook_delivery);
    select pg_catalog.format_type(a.atttypid, a.atttypmod) into strict id_type
        from pg_catalog.pg_attribute a
        where a.attrelid = m.outbox and a.attname = m.id_column and not a.attisdropped;
    select pg_catalog.format_type(a.atttypid, null) into strict status_type
        from pg_catalog.pg_attribute a
        where a.attrelid = m.outbox and a.attname = m.status_column and not a.attisdropped;
    -- Not those of other tables with the same ids. A source that is no id space is a topic: of
    -- a table whose events have no other source.
    select to_regclass(format('%I.id_space', n.nspname)) into spaces
        from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where c.oid = deliveries::regclass;
    if spaces is not null then
        execute format('select id, scope = ''table'' from %s where outbox = $1', spaces)
            into space, is_in_header using coalesce(pg_partition_root(m.outbox), m.outbox);
        own := format('source in ('''', %L)', space);
        if is_in_header is not true then
            own := format('(%s or not exists (select from %s s where s.id::text = source))',
                own, spaces);
        end if;
    end if;
    if m.attempts_column is not null then
        more := more || format(', %I = d.attempts', m.attempts_column);
    end if;
    if m.last_attempt_at_column is not null then
        more := more || format(', %I = coalesce(d.finished_at, clock_timestamp())',
            m.last_attempt_at_column);
    end if;
    if m.delivered_at_column is not null then
        more := more || format(', %I = case when d.has_ended and not d.has_failed '
            'then d.finished_at end', m.delivered_at_column);
    end if;
    if m.last_error_column is not null then
        more := more || format(', %I = d.failures', m.last_error_column);
    end if;
    return format(
        'with own as materialized (select event_id, source from unnest($1) where %11$s), '
        'marked as (update %1$s o set %2$I = case when not d.has_ended then %3$L::%6$s '
        'when d.has_failed then %4$L::%6$s else %5$L::%6$s end%7$s '
        'from (select event_id, bool_and(state in (''delivered'', ''failed'')) as has_ended, '
        'bool_or(state = ''failed'') as has_failed, max(attempts) as attempts, '
        'max(finished_at) as finished_at, string_agg(destination || '': '' || outcome, '', '' '
        'order by destination) filter (where state = ''failed'') as failures '
        'from %8$s where event_id = any (array(select event_id from own)) and %11$s '
        'group by event_id) d '
        'where o.%9$I = d.event_id::%10$s and (d.has_ended or o.%2$I in (%4$L, %5$L)) '
        'returning d.event_id) select array_agg(row(event_id, null, source)::%12$s) '
        'from own where event_id in (select event_id from marked)',
        m.outbox, m.status_column, m.pending_value, m.failed_value, m.delivered_value,
        status_type, more, deliveries, m.id_column, id_type, own,
        pg_typeof(null::{schema}.webhook_mark_again));
end $$;

-- Returns those that have ended and have no row. Who ends another delivery of the same
-- event sees ours, or we see its: each statement below has a snapshot of its own, where
-- that is read committed. In one order, so that no two wait for each other.
drop function {schema}.webhook_mark_events(text[]);
create function {schema}.webhook_mark_events(events {schema}.webhook_mark_again[])
    returns {schema}.webhook_mark_again[]
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    m {schema}.webhook_mark;
    one {schema}.webhook_mark_again;
    found {schema}.webhook_mark_again[];
    marked {schema}.webhook_mark_again[] := '{}';
    missing {schema}.webhook_mark_again[];
begin
    perform pg_advisory_xact_lock(hashtext('walpost.webhook_mark'), l.key)
        from (select distinct hashtext(e.event_id) as key from unnest(events) e order by 1) l;
    for m in select * from {schema}.webhook_mark order by outbox loop
        begin
            execute {schema}.webhook_mark_statement(m) into found using events;
            marked := marked || found;
        exception
            -- Events of other tables have ids that this one cannot have.
            when data_exception then
                foreach one in array events loop
                    begin
                        execute {schema}.webhook_mark_statement(m) into found using array[one];
                        marked := marked || found;
                    exception when data_exception then
                        null;
                    end;
                end loop;
            -- A delivery that has ended is not sent again for want of a mark.
            when no_data_found or undefined_table or undefined_column or undefined_function
                or datatype_mismatch or insufficient_privilege
                or integrity_constraint_violation then
                raise warning 'deliveries are not marked in %: % (%)', m.outbox, sqlerrm, sqlstate
                    using hint = 'call webhook_mark again, or delete its row of webhook_mark';
        end;
    end loop;
    select array_agg(e) into missing from unnest(events) e
        where not exists (select from unnest(marked) k
            where k.event_id = e.event_id and k.source = e.source)
        and (select bool_and(d.state in ('delivered', 'failed'))
            from {schema}.webhook_delivery d
            where d.event_id = e.event_id and d.source = e.source);
    return missing;
end $$;

create or replace function {schema}.webhook_mark_ended() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    events {schema}.webhook_mark_again[];
    missing {schema}.webhook_mark_again[];
begin
    select array_agg(row(e.event_id, null, e.source)::{schema}.webhook_mark_again) into events
        from (select distinct n.event_id, n.source from changed n join before b on b.id = n.id
            where n.state <> b.state
            and (n.state in ('delivered', 'failed') or b.state in ('delivered', 'failed'))) e;
    if events is null then
        return null;
    end if;
    missing := {schema}.webhook_mark_events(events);
    if current_setting('transaction_isolation') <> 'read committed' then
        missing := events;
    end if;
    if missing is not null then
        insert into {schema}.webhook_mark_again select * from unnest(missing);
    end if;
    return null;
end $$;

-- What senders call now and then, in transactions that are read committed and of their own:
-- their ids are younger than whatever they look for. It tells what is so, and anybody may
-- have it told. Returns how many are done with.
create or replace function {schema}.webhook_marked_again(at_most bigint) returns bigint
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    events {schema}.webhook_mark_again[];
    missing {schema}.webhook_mark_again[];
    left_over bigint := 0;
    -- Older than what the statements below see.
    oldest xid8 := pg_snapshot_xmin(pg_current_snapshot());
begin
    with again as (
        delete from {schema}.webhook_mark_again where ctid = any (array(
            select a.ctid from {schema}.webhook_mark_again a limit at_most for update skip locked))
        returning event_id, sought_by, source
    )
    select array_agg(row(event_id, sought_by, source)::{schema}.webhook_mark_again)
        into events from again;
    if events is null then
        return 0;
    end if;
    missing := {schema}.webhook_mark_events(events);
    if missing is not null then
        insert into {schema}.webhook_mark_again (event_id, sought_by, source)
            select e.event_id, coalesce(e.sought_by, pg_current_xact_id()), e.source
            from unnest(missing) e where e.sought_by is null or e.sought_by > oldest;
        get diagnostics left_over = row_count;
    end if;
    return cardinality(events) - left_over;
end $$;

-- As before, with events in the place of ids.
create or replace function {schema}.webhook_mark(
    outbox regclass,
    status_column name,
    id_column name default 'id',
    pending text default 'pending',
    delivered text default 'delivered',
    failed text default 'failed',
    attempts_column name default null,
    last_attempt_at_column name default null,
    delivered_at_column name default null,
    last_error_column name default null
) returns void language plpgsql as $$
declare
    m {schema}.webhook_mark;
begin
    m := row(outbox, id_column, status_column, pending, delivered, failed, attempts_column,
        last_attempt_at_column, delivered_at_column, last_error_column);
    -- What cannot work is told now, and not when the first delivery ends.
    begin
        execute {schema}.webhook_mark_statement(m) using array[]::{schema}.webhook_mark_again[];
    exception
        when no_data_found then
            raise exception 'table % has no column %', outbox,
                (select string_agg(format('%s, which %s names', n.name, n.parameter),
                        ', and no column ')
                    from (values (id_column, 'id_column'), (status_column, 'status_column'))
                        as n (name, parameter)
                    where not exists (select from pg_catalog.pg_attribute a
                        where a.attrelid = outbox and a.attname = n.name
                            and a.attnum > 0 and not a.attisdropped))
                using errcode = 'undefined_column';
    end;
    delete from {schema}.webhook_mark w where w.outbox = m.outbox;
    insert into {schema}.webhook_mark select m.*;
    -- Before that it costs nothing.
    if not exists (select from pg_catalog.pg_trigger t join pg_catalog.pg_type d
        on d.typrelid = t.tgrelid where d.oid = pg_typeof(null::{schema}.webhook_delivery)
        and t.tgname = 'webhook_mark')
    then
        create trigger webhook_mark after update on {schema}.webhook_delivery
            referencing old table as before new table as changed
            for each statement execute function {schema}.webhook_mark_ended();
    end if;
end $$;

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
            new.content_type, new.retry_limit, new.retry_wait_ms, new.created_at, new.source)
        is distinct from
        (old.id, old.destination, old.event_id, old.event_type, old.idempotency_key, old.path,
            old.content_type, old.retry_limit, old.retry_wait_ms, old.created_at, old.source)
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

-- What a role needs: reader (everything but what is sent, and answers), writer (who
-- creates deliveries), sender, operator, pruner. A reader loses whatever else it
-- had on the tables.
create or replace function {schema}.webhook_grant(kind text, grantee name)
returns void language plpgsql as $$
declare
    seen constant text := 'id, destination, event_id, event_type, idempotency_key, retry_limit, '
        'retry_wait_ms, created_at, state, attempts, fence, lease_until, claimed_by, '
        'next_attempt_at, finished_at, outcome, order_key, blocked_by, source';
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
            'retry_limit, retry_wait_ms, next_attempt_at, order_key, source), '
            'select (id, event_id, destination, source, state)'
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
