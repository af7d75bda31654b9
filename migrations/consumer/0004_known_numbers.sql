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
