-- consumer: a handler that commits is refused in a lane as well. A connection at
-- work in a lane has a row, and the trigger looks at each change of it; those of
-- earlier claims leave when a new one comes.
create table {schema}.consumer_lane (
    pos_id int not null,
    pid int not null,
    epoch bigint not null,
    primary key (pos_id, pid)
) with (fillfactor = 50);

create constraint trigger whole after insert or update on {schema}.consumer_lane
    deferrable initially deferred
    for each row execute function {schema}.at_commit();

create or replace function {schema}.lane_begin(p int, e bigint) returns void
language plpgsql as $$ begin
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
