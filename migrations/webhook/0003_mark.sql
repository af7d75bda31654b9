-- Rows of an outbox that say by themselves what became of their deliveries, in
-- the transaction that ends the last of them.
create table {schema}.webhook_mark (
    outbox regclass primary key,
    id_column name not null,
    status_column name not null,
    pending_value text not null,
    delivered_value text not null,
    failed_value text not null,
    attempts_column name,
    last_attempt_at_column name,
    delivered_at_column name,
    last_error_column name
);
-- Whoever writes it has rows of tables changed with the rights of the owner.
revoke all on {schema}.webhook_mark from public;

comment on table {schema}.webhook_mark is
    'Outboxes whose rows are told what became of their deliveries; see webhook_mark()';

-- One statement for each outbox. $1: ids of events; those whose rows it has changed come back.
create function {schema}.webhook_mark_statement(m {schema}.webhook_mark) returns text
    language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    id_type text;
    status_type text;
    more text := '';
    deliveries text;
begin
    select t.typrelid::regclass::text into deliveries
        from pg_catalog.pg_type t where t.oid = pg_typeof(null::{schema}.webhook_delivery);
    select pg_catalog.format_type(a.atttypid, a.atttypmod) into strict id_type
        from pg_catalog.pg_attribute a
        where a.attrelid = m.outbox and a.attname = m.id_column and not a.attisdropped;
    select pg_catalog.format_type(a.atttypid, null) into strict status_type
        from pg_catalog.pg_attribute a
        where a.attrelid = m.outbox and a.attname = m.status_column and not a.attisdropped;
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
        'with marked as (update %1$s o set %2$I = case when not d.has_ended then %3$L::%6$s '
        'when d.has_failed then %4$L::%6$s else %5$L::%6$s end%7$s '
        'from (select event_id, bool_and(state in (''delivered'', ''failed'')) as has_ended, '
        'bool_or(state = ''failed'') as has_failed, max(attempts) as attempts, '
        'max(finished_at) as finished_at, string_agg(destination || '': '' || outcome, '', '' '
        'order by destination) filter (where state = ''failed'') as failures '
        'from %8$s where event_id = any ($1) group by event_id) d '
        'where o.%9$I = d.event_id::%10$s and (d.has_ended or o.%2$I in (%4$L, %5$L)) '
        'returning d.event_id) select array_agg(event_id) from marked',
        m.outbox, m.status_column, m.pending_value, m.failed_value, m.delivered_value,
        status_type, more, deliveries, m.id_column, id_type);
end $$;

-- Events of which a transaction told that may not have seen all of their deliveries, or not
-- yet their row, until one that does has told it again. The WAL has a commit before other
-- transactions see it: with a synchronous standby as long before as that takes.
create table {schema}.webhook_mark_again (
    event_id text collate "C" not null,
    -- The sender that has found no row since. Once all that ran then have ended, there is none.
    sought_by xid8
);
revoke all on {schema}.webhook_mark_again from public;

comment on table {schema}.webhook_mark_again is
    'Events whose marks were made too early to see all, until a sender has made them anew';

-- Returns those that have ended and have no row. Who ends another delivery of the same
-- event sees ours, or we see its: each statement below has a snapshot of its own, where
-- that is read committed. In one order, so that no two wait for each other.
create function {schema}.webhook_mark_events(ids text[]) returns text[]
    language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    m {schema}.webhook_mark;
    one text;
    found text[];
    marked text[] := '{}';
    missing text[];
begin
    perform pg_advisory_xact_lock(hashtext('walpost.webhook_mark'), l.key)
        from (select distinct hashtext(e) as key from unnest(ids) e order by 1) l;
    for m in select * from {schema}.webhook_mark order by outbox loop
        begin
            execute {schema}.webhook_mark_statement(m) into found using ids;
            marked := marked || found;
        exception
            -- Events of other tables have ids that this one cannot have.
            when data_exception then
                foreach one in array ids loop
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
    if marked @> ids then
        return null;
    end if;
    select array_agg(e.event_id) into missing from (
        select d.event_id from {schema}.webhook_delivery d
        where d.event_id = any (ids) and d.event_id <> all (marked)
        group by d.event_id having bool_and(d.state in ('delivered', 'failed'))) e;
    return missing;
end $$;

create function {schema}.webhook_mark_ended() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    ids text[];
    missing text[];
begin
    select array_agg(distinct n.event_id) into ids from changed n join before b on b.id = n.id
        where n.state <> b.state
        and (n.state in ('delivered', 'failed') or b.state in ('delivered', 'failed'));
    if ids is null then
        return null;
    end if;
    missing := {schema}.webhook_mark_events(ids);
    if current_setting('transaction_isolation') <> 'read committed' then
        missing := ids;
    end if;
    if missing is not null then
        insert into {schema}.webhook_mark_again (event_id) select unnest(missing);
    end if;
    return null;
end $$;

-- What senders call now and then, in transactions that are read committed and of their own:
-- their ids are younger than whatever they look for. It tells what is so, and anybody may
-- have it told. Returns how many are done with.
create function {schema}.webhook_marked_again(at_most bigint) returns bigint
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    ids text[];
    seekers xid8[];
    missing text[];
    left_over bigint := 0;
    -- Older than what the statements below see.
    oldest xid8 := pg_snapshot_xmin(pg_current_snapshot());
begin
    with again as (
        delete from {schema}.webhook_mark_again where ctid = any (array(
            select a.ctid from {schema}.webhook_mark_again a limit at_most for update skip locked))
        returning event_id, sought_by
    )
    select array_agg(event_id), array_agg(sought_by) into ids, seekers from again;
    if ids is null then
        return 0;
    end if;
    missing := {schema}.webhook_mark_events(ids);
    if missing is not null then
        insert into {schema}.webhook_mark_again (event_id, sought_by)
            select a.event_id, coalesce(a.sought_by, pg_current_xact_id())
            from unnest(ids, seekers) a (event_id, sought_by)
            where a.event_id = any (missing) and (a.sought_by is null or a.sought_by > oldest);
        get diagnostics left_over = row_count;
    end if;
    return cardinality(ids) - left_over;
end $$;

-- From now on each row of the outbox says what became of its deliveries: pending
-- values stay until the last one has ended, and come back when one is retried.
-- Columns are optional but for id and status. To be called by the owner.
create function {schema}.webhook_mark(
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
        execute {schema}.webhook_mark_statement(m) using array[]::text[];
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
revoke all on function {schema}.webhook_mark(
    regclass, name, name, text, text, text, name, name, name, name) from public;
