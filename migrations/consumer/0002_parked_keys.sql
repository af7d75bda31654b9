-- A parked event holds back the later events of its key, and leaves by request.
--
-- state: parked: its handler could not apply it. waiting: it was not tried, as
-- an event of its key before it is parked. discarded: somebody has given it up;
-- the row is the proof of that.
-- holds_key: later events of the key wait behind this one.
-- request: what somebody wants of it; the owner of the partition does it.
-- One row per record: a replay that meets it again finds it.
delete from {schema}.consumer_parked p using {schema}.consumer_parked newer
    where newer.pos_id = p.pos_id and newer.off = p.off and newer.run > p.run;
alter table {schema}.consumer_parked
    drop constraint consumer_parked_pos_id_off_run_key,
    add column state text not null default 'parked'
        check (state in ('parked', 'waiting', 'discarded')),
    add column holds_key boolean not null default false,
    add column request text check (request in ('retry', 'discard')),
    add column requested_at timestamptz,
    add column requested_by text,
    add column settled_at timestamptz,
    add constraint consumer_parked_record unique (pos_id, off);
create index consumer_parked_requests on {schema}.consumer_parked (pos_id, off)
    where request is not null;
-- Keys are of any size, an index entry is not.
create index consumer_parked_keys on {schema}.consumer_parked (pos_id, sha256(key), off)
    where holds_key and state <> 'discarded';

-- Asks the owners of the partitions to retry or to discard parked events, and
-- answers for each id: requested, unknown, settled, no id (a record without a
-- usable id can only be discarded) or no reader (its partition is read no more:
-- it cannot be retried, and is discarded at once).
-- A retry of one event of a held key goes through all that wait, in order.
create function {schema}.request_parked(ids bigint[], what text, who text)
returns table (id bigint, answer text)
language plpgsql as $$
declare
    one bigint;
    p {schema}.consumer_parked;
    has_reader boolean;
begin
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
                set request = what, requested_at = now(), requested_by = who where q.id = one;
        elsif answer = 'no reader' and what = 'discard' then
            update {schema}.consumer_parked q
                set state = 'discarded', request = null, requested_at = now(), requested_by = who,
                    settled_at = now()
                where q.id = one;
        end if;
        return next;
    end loop;
end $$;
