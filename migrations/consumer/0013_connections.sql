-- consumer_lane: how many transactions of the claim's lanes are here. A database
-- that has taken over from another one, behind a pooler for example, may lack
-- some that a lane has committed; then the offset must not follow them.
alter table {schema}.consumer_lane
    add column work_epoch bigint,
    add column transactions bigint not null default 0;

-- First of a lane's transaction that the offset is to follow: see lane_begin.
create function {schema}.lane_work(p int, e bigint) returns void
language plpgsql as $$ begin
    if num_nulls(p, e) > 0 then
        perform {schema}.refuse_null('lane_work',
            array['p (position)', 'e (epoch)'], array[p::text, e::text]);
    end if;
    perform {schema}.lane_begin(p, e);
    update {schema}.consumer_lane set work_epoch = e,
            transactions = case when work_epoch = e then transactions + 1 else 1 end
        where pos_id = p and pid = pg_backend_pid();
end $$;

-- Before the offset follows the lanes of epoch e, which have committed n
-- transactions. WP001: some are not here.
create function {schema}.lanes_hold(p int, e bigint, n bigint) returns void
language plpgsql as $$ begin
    if num_nulls(p, e, n) > 0 then
        perform {schema}.refuse_null('lanes_hold',
            array['p (position)', 'e (epoch)', 'n (transactions)'],
            array[p::text, e::text, n::text]);
    end if;
    if n > (select coalesce(sum(l.transactions), 0) from {schema}.consumer_lane l
            where l.pos_id = p and l.work_epoch = e) then
        raise exception 'the database lacks transactions of the lanes' using errcode = 'WP001';
    end if;
end $$;
