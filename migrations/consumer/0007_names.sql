-- consumer: what holds for all members of a consumer. The name is one
-- application's, whose effects it tells from all others; under another group,
-- or another guard, it is another application or another life of it.
create table {schema}.consumer (
    name text primary key,
    group_id text not null,
    -- what keeps its effects from being made twice; null until a member tells
    guard text check (guard in ('rows', 'business key', 'redis'))
);
-- Where a name was used by several groups, the one that came last keeps it.
insert into {schema}.consumer (name, group_id)
    select distinct on (q.consumer) q.consumer, q.group_id from {schema}.position q
    order by q.consumer, q.id desc;

-- Takes the partition over: from here on batches of older epochs fail.
-- k: the member's guard, null where it does not tell.
-- WP002: the row belongs to another group, cluster or topic, or the name to
-- another group or guard.
create function {schema}.claim(p int, g text, c text, t text, k text)
returns table (epoch bigint, next_offset bigint, run int, reset_id uuid, known bigint[],
    leader_epoch int)
language plpgsql as $$
declare
    q {schema}.position;
begin
    perform set_config('walpost.end', 'claim', true);
    perform pg_advisory_xact_lock(x'57505354'::int, p);
    update {schema}.position u set epoch = u.epoch + 1
        where u.id = p and u.group_id = g and u.cluster_id = c and u.topic_id = t
        returning * into q;
    if not found then
        raise exception 'other group, cluster or topic' using errcode = 'WP002';
    end if;
    insert into {schema}.consumer (name, group_id, guard) values (q.consumer, g, k)
        on conflict (name) do nothing;
    update {schema}.consumer n set guard = k
        where n.name = q.consumer and n.group_id = g and n.guard is null and k is not null;
    perform from {schema}.consumer n
        where n.name = q.consumer and n.group_id = g and (k is null or n.guard = k);
    if not found then
        raise exception 'the name belongs to another group or guard' using errcode = 'WP002';
    end if;
    return query select q.epoch, q.next_offset, q.run, q.reset_id, q.known, q.leader_epoch;
end $$;

create or replace function {schema}.claim(p int, g text, c text, t text)
returns table (epoch bigint, next_offset bigint, run int, reset_id uuid, known bigint[],
    leader_epoch int)
language plpgsql as $$
begin
    return query select * from {schema}.claim(p, g, c, t, null);
end $$;

-- Refuses a reset that the guard of the consumer cannot tell from a copy. WP005.
create function {schema}.check_reset(c text, m text) returns void language plpgsql as $$
declare
    k text;
begin
    select n.guard into k from {schema}.consumer n where n.name = c;
    if k <> 'rows' and m in ('rerun', 'chosen') then
        raise exception 'effects of consumer % cannot be made again, as its guard, a %, does not '
            'tell those of an earlier run: use fill or skip', c,
            case k when 'redis' then 'key in Redis' else k end using errcode = 'WP005';
    end if;
end $$;

-- The consumer c works from now on in the group g, under the guard k; null
-- leaves either as it is. Members of before are refused from here on.
-- WP005: unknown, or effects are to be made again that rows alone can tell.
create function {schema}.change_consumer(c text, g text, k text) returns void language plpgsql as $$
declare
    q record;
begin
    perform set_config('walpost.end', 'change', true);
    if not exists (select from {schema}.consumer n where n.name = c) then
        raise exception 'no consumer % has read anything', c using errcode = 'WP005';
    end if;
    -- In order, so that two of these do not wait for each other.
    for q in select o.id from {schema}.position o where o.consumer = c order by o.id loop
        perform pg_advisory_xact_lock(x'57505354'::int, q.id);
    end loop;
    update {schema}.position o set epoch = o.epoch + 1, group_id = coalesce(g, o.group_id)
        where o.consumer = c;
    select o.topic, o.part, max(r.from_offset) as until into q
        from {schema}.position o join {schema}.consumer_reset r on r.pos_id = o.id
        where o.consumer = c and r.run = o.run and r.mode in ('rerun', 'chosen')
            and r.from_offset > o.next_offset
        group by o.topic, o.part order by o.topic, o.part limit 1;
    if found and k <> 'rows' then
        raise exception 'effects of %[%] are being made again until it has passed %: let it',
            q.topic, q.part, q.until using errcode = 'WP005';
    end if;
    update {schema}.consumer n set group_id = coalesce(g, n.group_id), guard = coalesce(k, n.guard)
        where n.name = c;
end $$;

-- A reset of one partition by `walpost consumer reset`, on a live consumer too.
-- m: rerun, fill, skip (forward), or chosen, which takes n from the offsets in
-- chosen, all of them below the stored offset.
-- seen: an offset without a marker that Kafka holds for the group. It counts
-- from now on as one that may be ours, so a member that starts before Kafka has
-- this reset's marker halts, and does not take it for another reset. So do the
-- numbers that Kafka might hold before.
-- WP005: never read, the direction is not that of the mode, or the guard cannot
-- tell.
create or replace function {schema}.operator_reset(
    c text, t text, p int, n bigint, m text, chosen bigint[], chosen_by text, events_per_s int,
    seen bigint, who text, why text
) returns table (reset_id uuid, from_offset bigint, to_offset bigint, run int, epoch bigint)
language plpgsql as $$
declare
    q {schema}.position;
    r uuid := gen_random_uuid();
    last bigint;
begin
    select * into q from {schema}.position o where o.consumer = c and o.topic = t and o.part = p;
    if not found or q.next_offset is null then
        raise exception 'consumer % has not read %[%]', c, t, p using errcode = 'WP005';
    end if;
    perform set_config('walpost.end', 'reset', true);
    perform pg_advisory_xact_lock(x'57505354'::int, q.id);
    update {schema}.position o set epoch = o.epoch + 1 where o.id = q.id returning * into q;
    perform {schema}.check_reset(c, m);
    if m = 'chosen' then
        select min(o), max(o) into n, last from unnest(chosen) o;
        if last >= q.next_offset then
            raise exception 'effects of %[%] end before % by now, and % was chosen',
                t, p, q.next_offset, last using errcode = 'WP005';
        end if;
    end if;
    if n is null or m not in ('rerun', 'fill', 'skip', 'chosen')
            or (m = 'skip') <> (n > q.next_offset) then
        raise exception 'effects of %[%] end before % by now: skip goes forward, the others back',
            t, p, q.next_offset using errcode = 'WP005';
    end if;
    run := {schema}.reset_to(q.id, q.epoch, q.next_offset, n, r, m);
    if m = 'chosen' then
        insert into {schema}.consumer_again (pos_id, off, reset_id)
            select q.id, o, r from unnest(chosen) o on conflict do nothing;
    end if;
    update {schema}.consumer_reset s
        set asked_by = coalesce(who, session_user), reason = why,
            events_per_s = operator_reset.events_per_s,
            chosen_events = cardinality(chosen), chosen_by = operator_reset.chosen_by
        where s.id = r;
    update {schema}.position o set known = array(
            select distinct k from unnest(q.known || array[q.next_offset, n, seen]) k
            where k is not null)
        where o.id = q.id;
    reset_id := r;
    from_offset := q.next_offset;
    to_offset := n;
    epoch := q.epoch;
    return next;
end $$;

-- An operator's reset of one partition, on a live consumer too: the owner's next
-- batch fails and it claims again. m: rerun, fill, or skip (forward). Returns
-- the run.
-- Kafka is not told of it, so the numbers that it may hold as ours stay listed:
-- one that a tool writes again, without its marker, is no wish to go there.
create or replace function {schema}.reset_partition(c text, t text, p int, n bigint, m text)
returns int language plpgsql as $$
declare
    q {schema}.position;
    now_run int;
begin
    select * into q from {schema}.position o where o.consumer = c and o.topic = t and o.part = p;
    if not found or q.next_offset is null then
        raise exception 'consumer % has not read %[%]', c, t, p;
    end if;
    perform set_config('walpost.end', 'reset', true);
    perform pg_advisory_xact_lock(x'57505354'::int, q.id);
    update {schema}.position o set epoch = o.epoch + 1 where o.id = q.id returning * into q;
    perform {schema}.check_reset(c, m);
    if (m = 'skip') <> (n > q.next_offset) or m not in ('rerun', 'fill', 'skip') then
        raise exception 'effects end before %: use rerun or fill to go back, skip to go forward',
            q.next_offset;
    end if;
    now_run := {schema}.reset_to(q.id, q.epoch, q.next_offset, n, gen_random_uuid(), m);
    update {schema}.position o
        set known = array(select distinct k from unnest(q.known || array[q.next_offset, n]) k)
        where o.id = q.id;
    return now_run;
end $$;
