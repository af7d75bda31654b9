-- The outbox as of relay/0001_outbox.sql, in partitions: one for each day (UTC),
-- so that a day leaves as a whole, and one for what no day takes.
create table {schema}.outbox (
    id uuid not null default gen_random_uuid(),
    aggregatetype text not null,
    aggregateid text not null,
    type text not null,
    payload jsonb,
    headers jsonb,
    traceparent text,
    tracestate text,
    idempotency_key text,
    -- the clock and not the start of the transaction, so that the events of one
    -- transaction differ
    created_at timestamptz not null default clock_timestamp(),
    -- whether a row's transaction is done is asked of snapshots by its xid
    xid xid8 not null default pg_current_xact_id(),
    -- insert order within an aggregate, whose writers serialise
    seq bigint not null generated always as identity,
    -- a unique index of a partitioned table has its key in it
    primary key (id, created_at)
) partition by range (created_at);

create index outbox_aggregate on {schema}.outbox (aggregatetype, aggregateid, created_at);

create table {schema}.outbox_default partition of {schema}.outbox default;

-- Keys are unique over all days, which no index of the outbox can be.
create table {schema}.outbox_key (
    idempotency_key text constraint outbox_idempotency_key primary key,
    id uuid not null,
    created_at timestamptz not null
);

-- Takes the key of a new event, or fails. An insert that is to be left out where
-- the key is taken says so before, for the next event with a key alone.
create function {schema}.take_key() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if current_setting('walpost.once', true) = 'on' then
        perform set_config('walpost.once', '', true);
        insert into {schema}.outbox_key (idempotency_key, id, created_at)
            values (new.idempotency_key, new.id, new.created_at)
            on conflict (idempotency_key) do nothing;
        if not found then
            return null;
        end if;
    else
        insert into {schema}.outbox_key (idempotency_key, id, created_at)
            values (new.idempotency_key, new.id, new.created_at);
    end if;
    return new;
end $$;
-- It writes with its owner's rights: for this trigger alone.
revoke all on function {schema}.take_key() from public;

create trigger outbox_take_key before insert on {schema}.outbox
    for each row when (new.idempotency_key is not null)
    execute function {schema}.take_key();

-- Makes the partition of a day (UTC), and says what became of it: made; there;
-- default, where rows of the day are in the default partition already; taken,
-- where another table has its name. Waits 200 ms for each lock, then fails.
create function {schema}.make_day(day date) returns text
language plpgsql set search_path = pg_catalog, pg_temp
    set timezone = 'UTC' set datestyle = 'ISO' set lock_timeout = '200ms' as $$
declare
    root regclass := (select typrelid from pg_type where oid = pg_typeof(null::{schema}.outbox));
    home name := (select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace
                  where c.oid = root);
    partition name := 'outbox_' || to_char(day, 'YYYYMMDD');
    low text := to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00';
    high text := to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00';
    bounds text := format('FOR VALUES FROM (%L) TO (%L)', low, high);
    has_rows bool;
    privilege record;
begin
    -- Where there is nothing to do, no lock is taken; then one at a time, by a
    -- lock that is none against writers.
    for locked in 0..1 loop
        if locked = 1 then
            lock table only {schema}.outbox in share update exclusive mode;
        end if;
        if exists (select from pg_inherits i join pg_class c on c.oid = i.inhrelid
                   where i.inhparent = root and pg_get_expr(c.relpartbound, c.oid) = bounds)
        then
            return 'there';
        end if;
    end loop;
    select exists (select from {schema}.outbox_default d
                   where d.created_at >= low::timestamptz and d.created_at < high::timestamptz)
        into has_rows;
    if has_rows then
        return 'default';
    end if;
    if exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
               where c.relname = partition and n.nspname = home)
    then
        return 'taken';
    end if;
    -- Attached and not created as a partition, which would lock writers out.
    execute format('create table %I.%I (like %s including all excluding identity)',
        home, partition, root);
    for privilege in
        select a.privilege_type as what, a.is_grantable as passed_on,
            case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end as who
        from pg_class c, aclexplode(c.relacl) a where c.oid = root and a.grantee <> c.relowner
    loop
        execute format('grant %s on %I.%I to %s', privilege.what, home, partition, privilege.who)
            || case when privilege.passed_on then ' with grant option' else '' end;
    end loop;
    execute format('alter table %I.%I owner to %I', home, partition,
        (select pg_get_userbyid(relowner) from pg_class where oid = root));
    execute format('alter table %s attach partition %I.%I %s', root, home, partition, bounds);
    return 'made';
exception
    -- A row of the day came meanwhile; another partition takes a part of it.
    when check_violation then return 'default';
    when invalid_object_definition then return 'there';
end $$;

select {schema}.make_day((clock_timestamp() at time zone 'UTC')::date + n)
    from generate_series(0, 7) n;

comment on table {schema}.outbox is
    'Events to publish, written in the transaction that changes the state';
comment on column {schema}.outbox.id is
    'Identity of the event, from writer to consumer';
comment on column {schema}.outbox.aggregatetype is
    'Kind of thing the event is about; by default it names the topic';
comment on column {schema}.outbox.aggregateid is
    'The thing the event is about: the record key; its events keep their order';
comment on column {schema}.outbox.type is
    'What happened';
comment on column {schema}.outbox.payload is
    'Value of the record; null for none';
comment on column {schema}.outbox.headers is
    'Headers of the record: an object of strings';
comment on column {schema}.outbox.traceparent is
    'W3C Trace Context of the writer';
comment on column {schema}.outbox.tracestate is
    'W3C Trace Context of the writer, its vendors'' part';
comment on column {schema}.outbox.idempotency_key is
    'At most one event per key; null for no such limit';
comment on column {schema}.outbox.created_at is
    'When the row was inserted; not the order of commit';
comment on column {schema}.outbox.xid is
    'Transaction that wrote the row; never written by the application';
comment on column {schema}.outbox.seq is
    'Insert order; never written by the application';

comment on table {schema}.outbox_default is
    'Events of days that have no partition';
comment on table {schema}.outbox_key is
    'Idempotency keys of the events in the outbox; written by a trigger';
comment on column {schema}.outbox_key.id is
    'Event that has taken the key';
comment on column {schema}.outbox_key.created_at is
    'Of that event';

-- Inserts alone: deleting old rows is no event.
create publication {publication} for table {schema}.outbox
    with (publish = 'insert', publish_via_partition_root = true);
