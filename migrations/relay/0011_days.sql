-- A day of the outbox, or of its archive, is reached through the whole table
-- alone: its grants count there, and its policies of row level security. So far
-- each day had the grants of the outbox, and kept them in the archive.
do $$
declare
    home oid := (select typnamespace from pg_type
                 where oid = pg_typeof(null::{schema}.checkpoint));
    day regclass;
begin
    if not exists (select from pg_proc where pronamespace = home and proname = 'make_day') then
        return;
    end if;

    -- Leaves a partition to its owner.
    create or replace function {schema}.close_day(day regclass) returns void
    language plpgsql set search_path = pg_catalog, pg_temp as $close$
    declare
        who text;
    begin
        for who in
            select case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end
            from pg_class c, aclexplode(c.relacl) a where c.oid = day and a.grantee <> c.relowner
            union
            select case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end
            from pg_class c join pg_attribute t on t.attrelid = c.oid, aclexplode(t.attacl) a
            where c.oid = day and a.grantee <> c.relowner
        loop
            execute format('revoke all on table %s from %s cascade', day, who);
        end loop;
    end $close$;

    -- Makes the partition of a day (UTC), and says what became of it: made; there;
    -- default, where rows of the day are in the default partition already; taken,
    -- where another table has its name. Waits 200 ms for each lock, then fails.
    create or replace function {schema}.make_day(day date) returns text
    language plpgsql set search_path = pg_catalog, pg_temp
        set timezone = 'UTC' set datestyle = 'ISO' set lock_timeout = '200ms' as $make$
    declare
        root regclass := (select typrelid from pg_type where oid = pg_typeof(null::{schema}.outbox));
        home name := (select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace
                      where c.oid = root);
        partition name := 'outbox_' || to_char(day, 'YYYYMMDD');
        low text := to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00';
        high text := to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00';
        bounds text := format('FOR VALUES FROM (%L) TO (%L)', low, high);
        has_rows bool;
    begin
        -- Where there is nothing to do, no lock is taken; then one at a time, by a
        -- lock that is none against writers.
        for locked in 0..1 loop
            if locked = 1 then
                lock table only {schema}.outbox in share update exclusive mode;
            end if;
            if exists (select from pg_inherits i join pg_class c on c.oid = i.inhrelid
                       where i.inhparent = root and pg_get_expr(c.relpartbound, c.oid) = bounds)
            then
                return 'there';
            end if;
        end loop;
        select exists (select from {schema}.outbox_default d
                       where d.created_at >= low::timestamptz and d.created_at < high::timestamptz)
            into has_rows;
        if has_rows then
            return 'default';
        end if;
        if exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                   where c.relname = partition and n.nspname = home)
        then
            return 'taken';
        end if;
        -- Attached and not created as a partition, which would lock writers out.
        execute format('create table %I.%I (like %s including all excluding identity)',
            home, partition, root);
        execute format('alter table %I.%I owner to %I', home, partition,
            (select pg_get_userbyid(relowner) from pg_class where oid = root));
        -- Privileges by default are none that anybody has asked for here.
        perform {schema}.close_day(format('%I.%I', home, partition)::regclass);
        execute format('alter table %s attach partition %I.%I %s', root, home, partition, bounds);
        return 'made';
    exception
        -- A row of the day came meanwhile; another partition takes a part of it.
        when check_violation then return 'default';
        when invalid_object_definition then return 'there';
    end $make$;

    for day in
        select c.oid::regclass from pg_inherits i join pg_class root on root.oid = i.inhparent
            join pg_class c on c.oid = i.inhrelid
        where root.relnamespace = home and root.relname in ('outbox', 'outbox_archive')
            and c.relname ~ '^outbox_[0-9]+$' and length(c.relname) = 15
    loop
        perform {schema}.close_day(day);
    end loop;
end $$;
