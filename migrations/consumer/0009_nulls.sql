-- No function takes null for what it needs: 22004, with the name of the argument.
-- Without that some did nothing, and others took it for another owner's claim.

-- given: the arguments as text, in the order of their names.
create function {schema}.refuse_null(f text, names text[], given text[]) returns void
language plpgsql as $$
declare
    missing text;
begin
    select string_agg(a.name, ', ' order by a.at) into missing
        from unnest(names, given) with ordinality a (name, given, at) where a.given is null;
    raise exception '%: % must not be null', f, missing using errcode = '22004';
end $$;

-- Takes the partition over: from here on batches of older epochs fail.
-- k: the member's guard, null where it does not tell.
-- WP002: the row belongs to another group, cluster or topic, or the name to
-- another group or guard.
create or replace function {schema}.claim(p int, g text, c text, t text, k text)
returns table (epoch bigint, next_offset bigint, run int, reset_id uuid, known bigint[],
    leader_epoch int)
language plpgsql as $$
declare
    q {schema}.position;
begin
    if num_nulls(p, g, c, t) > 0 then
        perform {schema}.refuse_null('claim',
            array['p (position)', 'g (group)', 'c (cluster)', 't (topic id)'],
            array[p::text, g, c, t]);
    end if;
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

-- Stores where the partition starts, once. WP001: given up, or decided already.
create or replace function {schema}.start_at(p int, e bigint, n bigint, kn bigint[])
returns void language plpgsql as $$
begin
    if num_nulls(p, e, n, kn) > 0 or array_position(kn, null) is not null then
        perform {schema}.refuse_null('start_at',
            array['p (position)', 'e (epoch)', 'n (offset)', 'kn (known)'],
            array[p::text, e::text, n::text,
                case when array_position(kn, null) is null then kn::text end]);
    end if;
    perform set_config('walpost.end', 'start', true);
    update {schema}.position q set next_offset = n, known = kn
        where q.id = p and q.epoch = e and q.next_offset is null;
    if not found then
        raise exception 'partition given up' using errcode = 'WP001';
    end if;
end $$;

-- Carries out the offset reset r, and says in which run the partition is from
-- here on. m: rerun, fill, skip or chosen. WP001: given up.
-- What was chosen before, a rerun makes with all the others, and a skip that
-- passes over it gives up.
create or replace function {schema}.reset_to(
    p int, e bigint, old bigint, n bigint, r uuid, m text
) returns int language plpgsql as $$
declare
    now_run int;
begin
    if num_nulls(p, e, old, n, r, m) > 0 then
        perform {schema}.refuse_null('reset_to',
            array['p (position)', 'e (epoch)', 'old (offset)', 'n (offset)', 'r (reset)',
                'm (mode)'],
            array[p::text, e::text, old::text, n::text, r::text, m]);
    end if;
    perform set_config('walpost.end', 'reset', true);
    update {schema}.position q
        set next_offset = n, leader_epoch = null, reset_id = r, known = array[n],
            run = q.run + case when m = 'rerun' and n < old then 1 else 0 end
        where q.id = p and q.epoch = e and q.next_offset = old
        returning q.run into now_run;
    if not found then
        raise exception 'partition given up' using errcode = 'WP001';
    end if;
    delete from {schema}.consumer_again a
        where a.pos_id = p and (a.off < n or m = 'rerun' and n < old);
    insert into {schema}.consumer_reset (id, pos_id, consumer, topic, part, from_offset, to_offset,
            mode, fill_until, chosen_until, run, epoch)
        select r, q.id, q.consumer, q.topic, q.part, old, n, m,
            case when m = 'fill' then
                greatest(old, (select max(f.fill_until) from {schema}.consumer_reset f
                               where f.pos_id = p and f.run = now_run))
            end,
            case when m = 'chosen' then old end,
            q.run, q.epoch
        from {schema}.position q where q.id = p;
    return now_run;
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
    if num_nulls(c, t, p, n, m) > 0 then
        perform {schema}.refuse_null('reset_partition',
            array['c (consumer)', 't (topic)', 'p (partition)', 'n (offset)', 'm (mode)'],
            array[c, t, p::text, n::text, m]);
    end if;
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

-- First of a batch: fence and offset. WP001: another owner has claimed it.
-- WP003: not READ COMMITTED, where a later statement would not see a claim.
-- le: leader epoch of the record before new, null where it is not known.
create or replace function {schema}.batch_begin(
    p int, e bigint, old bigint, new bigint, kn bigint[], le int
) returns void language plpgsql as $$
begin
    if num_nulls(p, e, old, new, kn) > 0 or array_position(kn, null) is not null then
        perform {schema}.refuse_null('batch_begin',
            array['p (position)', 'e (epoch)', 'old (offset)', 'new (offset)', 'kn (known)'],
            array[p::text, e::text, old::text, new::text,
                case when array_position(kn, null) is null then kn::text end]);
    end if;
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

-- First of a lane's transaction: other lanes share the partition, and its offset
-- moves beside them, behind what all have done. The shared lock is what a claim
-- waits for; the epoch is looked at in a later statement, which sees the claim
-- that it waited for. WP001: given up. WP003: not READ COMMITTED.
create or replace function {schema}.lane_begin(p int, e bigint) returns void
language plpgsql as $$ begin
    if num_nulls(p, e) > 0 then
        perform {schema}.refuse_null('lane_begin',
            array['p (position)', 'e (epoch)'], array[p::text, e::text]);
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'read committed only' using errcode = 'WP003';
    end if;
    perform pg_advisory_xact_lock_shared(x'57505354'::int, p);
    perform from {schema}.position q where q.id = p and q.epoch = e;
    if not found then
        raise exception 'partition given up' using errcode = 'WP001';
    end if;
    perform set_config('walpost.begin', p || ':' || e, true);
    update {schema}.consumer_lane set epoch = e where pos_id = p and pid = pg_backend_pid();
    if not found then
        delete from {schema}.consumer_lane l using (
            select o.pid from {schema}.consumer_lane o where o.pos_id = p and o.epoch < e
            for update skip locked) old
            where l.pos_id = p and l.pid = old.pid;
        insert into {schema}.consumer_lane (pos_id, pid, epoch) values (p, pg_backend_pid(), e);
    end if;
end $$;

-- Last of a batch. WP004: the handler ended the transaction in between.
create or replace function {schema}.batch_end(m text) returns void language plpgsql as $$
begin
    if m is null then
        perform {schema}.refuse_null('batch_end',
            array['m (marker)'], array[m]);
    end if;
    if coalesce(current_setting('walpost.begin', true), '') <> m then
        raise exception 'the handler ended the transaction' using errcode = 'WP004';
    end if;
    perform set_config('walpost.end', m, true);
end $$;

-- Asks the owners of the partitions to retry or to discard parked events, and
-- answers for each id: requested, unknown, settled, no id (a record without a
-- usable id can only be discarded) or no reader (its partition is read no more:
-- it cannot be retried, and is discarded at once).
-- A retry of one event of a held key goes through all that wait, in order.
-- who: by default the user of the session.
create or replace function {schema}.request_parked(ids bigint[], what text, who text)
returns table (id bigint, answer text)
language plpgsql as $$
declare
    one bigint;
    p {schema}.consumer_parked;
    has_reader boolean;
begin
    if num_nulls(ids, what) > 0 then
        perform {schema}.refuse_null('request_parked',
            array['ids', 'what'], array[ids::text, what]);
    end if;
    if what not in ('retry', 'discard') then
        raise exception 'retry or discard, not %', what;
    end if;
    foreach one in array ids loop
        select * into p from {schema}.consumer_parked q where q.id = one for update;
        has_reader := exists (select from {schema}.position o where o.id = p.pos_id);
        id := one;
        answer := case
            when p.id is null then 'unknown'
            when p.state = 'discarded' then 'settled'
            when what = 'retry' and p.event_id is null then 'no id'
            when not has_reader then 'no reader'
            else 'requested'
        end;
        if answer = 'requested' then
            update {schema}.consumer_parked q
                set request = what, requested_at = now(),
                    requested_by = coalesce(who, session_user)
                where q.id = one;
        elsif answer = 'no reader' and what = 'discard' then
            update {schema}.consumer_parked q
                set state = 'discarded', request = null, requested_at = now(),
                    requested_by = coalesce(who, session_user), settled_at = now()
                where q.id = one;
        end if;
        return next;
    end loop;
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
-- Null where it is not needed: n for chosen, chosen for all others, chosen_by,
-- events_per_s, seen, who and why.
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
    if num_nulls(c, t, p, m) > 0
            or (case m when 'chosen' then chosen is null else n is null end) then
        perform {schema}.refuse_null('operator_reset',
            array['c (consumer)', 't (topic)', 'p (partition)', 'm (mode)',
                case m when 'chosen' then 'chosen' else 'n (offset)' end],
            array[c, t, p::text, m, case m when 'chosen' then chosen::text else n::text end]);
    end if;
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

-- Kafka has acknowledged the offset n with a marker, as a commit from outside of
-- the group: it holds no other number of ours. Nothing where a member has
-- claimed the partition meanwhile, whose own commits say so.
create or replace function {schema}.offset_synced(p int, e bigint, n bigint)
returns boolean language plpgsql as $$
begin
    if num_nulls(p, e, n) > 0 then
        perform {schema}.refuse_null('offset_synced',
            array['p (position)', 'e (epoch)', 'n (offset)'],
            array[p::text, e::text, n::text]);
    end if;
    perform set_config('walpost.end', 'sync', true);
    update {schema}.position q set known = array[n]
        where q.id = p and q.epoch = e and q.next_offset = n;
    return found;
end $$;

-- Effects that need no longer be remembered: of the consumer c, made before
-- `before`, by records that the topic no longer holds: those below lows[i] of
-- the position ids[i], and those of positions that are no more; not of events
-- that are parked, whose effect is still to be made.
-- One transaction looks at `pages` pages of done from the page `page` on, so it
-- is bounded whatever it finds, and needs no index beside the key; null when
-- there is nothing behind.
create or replace function {schema}.prune_done(
    c text, ids int[], lows bigint[], before timestamptz, page bigint, pages int
) returns bigint language plpgsql as $$
declare
    pruned bigint;
    -- in pages
    size bigint;
begin
    if num_nulls(c, ids, lows, before, page, pages) > 0 then
        perform {schema}.refuse_null('prune_done',
            array['c (consumer)', 'ids', 'lows', 'before', 'page', 'pages'],
            array[c, ids::text, lows::text, before::text, page::text, pages::text]);
    end if;
    select pg_relation_size(t.typrelid) / current_setting('block_size')::bigint into size
        from pg_type t where t.oid = pg_typeof(null::{schema}.done);
    if page >= size then
        return null;
    end if;
    delete from {schema}.done d
        where d.ctid >= format('(%s,0)', page)::tid
            and d.ctid < format('(%s,0)', page + pages)::tid
            and d.consumer = c and d.at < before
            and (d.off < (select s.low from unnest(ids, lows) s (id, low) where s.id = d.pos_id)
                or not exists (select from {schema}.position q where q.id = d.pos_id))
            and not exists (select from {schema}.consumer_parked k where k.pos_id = d.pos_id
                and k.off = d.off and k.state <> 'discarded');
    get diagnostics pruned = row_count;
    return pruned;
end $$;

-- Refuses a reset that the guard of the consumer cannot tell from a copy. WP005.
create or replace function {schema}.check_reset(c text, m text) returns void
language plpgsql as $$
declare
    k text;
begin
    if num_nulls(c, m) > 0 then
        perform {schema}.refuse_null('check_reset',
            array['c (consumer)', 'm (mode)'], array[c, m]);
    end if;
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
create or replace function {schema}.change_consumer(c text, g text, k text) returns void
language plpgsql as $$
declare
    q record;
begin
    if c is null then
        perform {schema}.refuse_null('change_consumer',
            array['c (consumer)'], array[c]);
    end if;
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
