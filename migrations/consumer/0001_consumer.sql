-- Tables and functions of the consumer.
--
-- position: one row per consumer, topic and partition: where the effects of
-- its events end. The row is the fence: whoever claims it raises its epoch, and
-- a batch of an older epoch fails.
create table {schema}.position (
    id int generated always as identity primary key,
    consumer text not null,
    topic text not null,
    part int not null,
    group_id text not null,
    cluster_id text not null,
    topic_id text not null,
    epoch bigint not null default 0,
    -- null until the first start has been decided
    next_offset bigint check (next_offset >= 0),
    -- of the leader that appended the record before next_offset, null where that
    -- is not known: another one there means that Kafka has lost records
    leader_epoch int,
    -- raised by each offset reset that runs effects again
    run int not null default 0,
    -- the last offset reset, see consumer_reset
    reset_id uuid,
    -- offsets other than next_offset that Kafka may still hold as ours
    known bigint[] not null default '{}',
    unique (consumer, topic, part)
) with (fillfactor = 50);

-- done: an effect that was made: of which event, by the record at which
-- offset, in which run. It alone decides every replay.
create table {schema}.done (
    consumer text collate "C" not null,
    source text collate "C" not null,
    event_id text collate "C" not null,
    pos_id int not null,
    off bigint not null,
    run int not null,
    at timestamptz not null default now(),
    primary key (consumer, source, event_id)
);

-- consumer_parked: an event that its handler could not apply, set aside in the
-- transaction that moved the offset past it.
create table {schema}.consumer_parked (
    id bigint generated always as identity primary key,
    consumer text not null,
    pos_id int not null,
    topic text not null,
    part int not null,
    off bigint not null,
    run int not null,
    source text not null,
    -- null where the record carries no usable id
    event_id text,
    key bytea,
    value bytea,
    header_names text[] not null,
    header_values bytea[] not null,
    timestamp_ms bigint,
    reason text not null,
    attempts int not null,
    parked_at timestamptz not null default now(),
    unique (pos_id, off, run)
);

-- consumer_reset: every offset reset that was carried out.
create table {schema}.consumer_reset (
    id uuid primary key,
    pos_id int not null,
    consumer text not null,
    topic text not null,
    part int not null,
    from_offset bigint,
    to_offset bigint not null,
    mode text not null check (mode in ('rerun', 'fill', 'skip')),
    -- fill: events below this offset that are done stay done, whatever their
    -- run; an earlier reset may have left them behind the current one
    fill_until bigint,
    run int not null,
    epoch bigint not null,
    at timestamptz not null default now()
);
create index consumer_reset_by_position on {schema}.consumer_reset (pos_id, at);

-- Takes the partition over: from here on batches of older epochs fail.
-- WP002: the row belongs to another group, cluster or topic.
create function {schema}.claim(p int, g text, c text, t text)
returns table (epoch bigint, next_offset bigint, run int, reset_id uuid, known bigint[],
    leader_epoch int)
language plpgsql as $$
begin
    perform set_config('walpost.end', 'claim', true);
    perform pg_advisory_xact_lock(x'57505354'::int, p);
    return query
        update {schema}.position q set epoch = q.epoch + 1
        where q.id = p and q.group_id = g and q.cluster_id = c and q.topic_id = t
        returning q.epoch, q.next_offset, q.run, q.reset_id, q.known, q.leader_epoch;
    if not found then
        raise exception 'other group, cluster or topic' using errcode = 'WP002';
    end if;
end $$;

-- Stores where the partition starts, once. WP001: given up, or decided already.
create function {schema}.start_at(p int, e bigint, n bigint, kn bigint[])
returns void language plpgsql as $$
begin
    perform set_config('walpost.end', 'start', true);
    update {schema}.position q set next_offset = n, known = kn
        where q.id = p and q.epoch = e and q.next_offset is null;
    if not found then
        raise exception 'partition given up' using errcode = 'WP001';
    end if;
end $$;

-- Carries out the offset reset r, which Kafka holds already, and says in which
-- run the partition is from here on. m: rerun, fill or skip. WP001: given up.
create function {schema}.reset_to(p int, e bigint, old bigint, n bigint, r uuid, m text)
returns int language plpgsql as $$
declare
    now_run int;
begin
    perform set_config('walpost.end', 'reset', true);
    update {schema}.position q
        set next_offset = n, leader_epoch = null, reset_id = r, known = array[n],
            run = q.run + case when m = 'rerun' and n < old then 1 else 0 end
        where q.id = p and q.epoch = e and q.next_offset = old
        returning q.run into now_run;
    if not found then
        raise exception 'partition given up' using errcode = 'WP001';
    end if;
    insert into {schema}.consumer_reset
            (id, pos_id, consumer, topic, part, from_offset, to_offset, mode, fill_until, run, epoch)
        select r, q.id, q.consumer, q.topic, q.part, old, n, m,
            case when m = 'fill' then
                greatest(old, (select max(f.fill_until) from {schema}.consumer_reset f
                               where f.pos_id = p and f.run = now_run))
            end,
            q.run, q.epoch
        from {schema}.position q where q.id = p;
    return now_run;
end $$;

-- An operator's reset of one partition, on a live consumer too: the owner's next
-- batch fails and it claims again. m: rerun, fill, or skip (forward). Returns
-- the run.
create function {schema}.reset_partition(c text, t text, p int, n bigint, m text)
returns int language plpgsql as $$
declare
    q {schema}.position;
begin
    select * into q from {schema}.position o where o.consumer = c and o.topic = t and o.part = p;
    if not found or q.next_offset is null then
        raise exception 'consumer % has not read %[%]', c, t, p;
    end if;
    perform set_config('walpost.end', 'reset', true);
    perform pg_advisory_xact_lock(x'57505354'::int, q.id);
    update {schema}.position o set epoch = o.epoch + 1 where o.id = q.id returning * into q;
    if (m = 'skip') <> (n > q.next_offset) or m not in ('rerun', 'fill', 'skip') then
        raise exception 'effects end before %: use rerun or fill to go back, skip to go forward',
            q.next_offset;
    end if;
    return {schema}.reset_to(q.id, q.epoch, q.next_offset, n, gen_random_uuid(), m);
end $$;

-- First of a batch: fence and offset. WP001: another owner has claimed it.
-- WP003: not READ COMMITTED, where a later statement would not see a claim.
-- le: leader epoch of the record before new.
create function {schema}.batch_begin(
    p int, e bigint, old bigint, new bigint, kn bigint[], le int
) returns void language plpgsql as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'read committed only' using errcode = 'WP003';
    end if;
    perform set_config('walpost.end', '', true),
        set_config('walpost.begin', p || ':' || e || ':' || new, true);
    update {schema}.position q set next_offset = new, known = kn, leader_epoch = le
        where q.id = p and q.epoch = e and q.next_offset = old;
    if not found then
        raise exception 'partition given up' using errcode = 'WP001';
    end if;
end $$;

-- Last of a batch. WP004: the handler ended the transaction in between.
create function {schema}.batch_end(m text) returns void language plpgsql as $$
begin
    if coalesce(current_setting('walpost.begin', true), '') <> m then
        raise exception 'the handler ended the transaction' using errcode = 'WP004';
    end if;
    perform set_config('walpost.end', m, true);
end $$;

-- Refuses a COMMIT that comes before batch_end. WP004.
create function {schema}.at_commit() returns trigger language plpgsql as $$
begin
    if coalesce(current_setting('walpost.end', true), '') = '' then
        raise exception 'COMMIT before the end of the batch' using errcode = 'WP004';
    end if;
    return null;
end $$;

create constraint trigger whole after update on {schema}.position
    deferrable initially deferred
    for each row execute function {schema}.at_commit();
