-- First attempts and retries are found apart, so that neither is looked for among the
-- others.
drop index {schema}.webhook_due;
create index webhook_due on {schema}.webhook_delivery
    (destination, (least(attempts, 1)), next_attempt_at, id)
    where state = 'pending';

-- What is not done of each destination, or of the one that is named: of each state
-- up to at_most, in the order of an index, whatever statistics say. Known are those
-- with a row, and up to 1,000 others for which something is pending. Whoever waits
-- for a first attempt waits since that was due, and who is blocked since it was
-- created. By key those are blocked that a sender has looked at, as it does with what
-- is due.
create or replace function {schema}.webhook_backlog(which text, at_most bigint)
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
