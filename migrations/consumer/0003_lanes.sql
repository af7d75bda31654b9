-- First of a lane's transaction: other lanes share the partition, and its offset
-- moves beside them, behind what all have done. The shared lock is what a claim
-- waits for; the epoch is looked at in a later statement, which sees the claim
-- that it waited for. WP001: given up. WP003: not READ COMMITTED.
create function {schema}.lane_begin(p int, e bigint) returns void language plpgsql as $$ begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'read committed only' using errcode = 'WP003';
    end if;
    perform pg_advisory_xact_lock_shared(x'57505354'::int, p);
    perform from {schema}.position q where q.id = p and q.epoch = e;
    if not found then
        raise exception 'partition given up' using errcode = 'WP001';
    end if;
    perform set_config('walpost.begin', p || ':' || e, true);
end $$;
