-- What operators do: resets with who and why, of chosen events alone, at a
-- bounded speed; and effects that need no longer be remembered leave.
--
-- consumer_again: records whose effect a reset has chosen to be made once more.
-- A row leaves in the transaction that makes the effect and moves the offset
-- past the record, so whatever is killed in between, it is made again once. The
-- row of done stays all the while: a copy of the event is known for one.
-- Every row lies at next_offset or behind it: what goes past a record deals with
-- its row.
create table {schema}.consumer_again (
    pos_id int not null,
    off bigint not null,
    -- of the reset that chose it first
    reset_id uuid not null,
    primary key (pos_id, off)
);

-- chosen: of the events below chosen_until those in consumer_again are applied,
-- and no others, whether they are done or not.
-- events_per_s: most effects a second below the offset where it began.
alter table {schema}.consumer_reset
    drop constraint consumer_reset_mode_check,
    add constraint consumer_reset_mode_check check (mode in ('rerun', 'fill', 'skip', 'chosen')),
    add column chosen_until bigint,
    add column chosen_events int,
    add column chosen_by text,
    add column events_per_s int check (events_per_s > 0),
    add column asked_by text,
    add column reason text;

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

-- A reset of one partition by `walpost consumer reset`, on a live consumer too.
-- m: rerun, fill, skip (forward), or chosen, which takes n from the offsets in
-- chosen, all of them below the stored offset.
-- seen: an offset without a marker that Kafka holds for the group. It counts
-- from now on as one that may be ours, so a member that starts before Kafka has
-- this reset's marker halts, and does not take it for another reset. So do the
-- numbers that Kafka might hold before.
-- WP005: never read, or the direction is not that of the mode.
create function {schema}.operator_reset(
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
create function {schema}.offset_synced(p int, e bigint, n bigint)
returns boolean language plpgsql as $$
begin
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
create function {schema}.prune_done(
    c text, ids int[], lows bigint[], before timestamptz, page bigint, pages int
) returns bigint language plpgsql as $$
declare
    pruned bigint;
    -- in pages
    size bigint;
begin
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
