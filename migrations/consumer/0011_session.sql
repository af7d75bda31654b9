-- What a handler sets in its session does not reach the handler of another event.
-- begin_session comes before batch_begin or lane_begin, and undo_session after each
-- event of a batch and before batch_end. The client sends `reset session
-- authorization; reset role` before undo_session, because another role may have no
-- right to call it.

-- Settings that a pooler, a driver or the application may have set for the session
-- before. undo_session puts them back; all others go to the session's defaults.
create function {schema}.session_values() returns text[] language plpgsql stable as $$ begin
    return array[
        current_setting('session_authorization'), current_setting('role'),
        current_setting('search_path'), current_setting('TimeZone'),
        current_setting('DateStyle'), current_setting('IntervalStyle'),
        current_setting('client_encoding'), current_setting('application_name'),
        current_setting('standard_conforming_strings'), current_setting('bytea_output'),
        current_setting('extra_float_digits'), current_setting('statement_timeout'),
        current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'),
        current_setting('default_transaction_isolation'),
        current_setting('default_transaction_read_only'),
        current_setting('default_transaction_deferrable'), current_setting('row_security'),
        current_setting('synchronous_commit'), current_setting('work_mem'),
        current_setting('plan_cache_mode')];
end $$;

-- l, i: milliseconds of lock_timeout and idle_in_transaction_session_timeout.
create function {schema}.begin_session(l bigint, i bigint) returns void language plpgsql as $$
begin
    if num_nulls(l, i) > 0 then
        perform {schema}.refuse_null('begin_session', array['l (lock timeout)', 'i (idle timeout)'],
            array[l::text, i::text]);
    end if;
    perform set_config('walpost.session', {schema}.session_values()::text, true),
        set_config('lock_timeout', l::text, true),
        set_config('idle_in_transaction_session_timeout', i::text, true);
end $$;

-- What a rollback does not undo: advisory locks of the session, and statements that
-- SQL prepared. Those of the protocol are the client's.
create function {schema}.forget_session() returns void language plpgsql as $$
declare
    prepared text;
begin
    perform pg_advisory_unlock_all();
    for prepared in select name from pg_prepared_statements where from_sql loop
        execute format('deallocate %I', prepared);
    end loop;
end $$;

-- n: whether the handler of another event follows in this transaction. WP006: the
-- handler made the transaction read-only, which cannot be undone for the next one.
create function {schema}.undo_session(l bigint, i bigint, n boolean) returns void
language plpgsql as $$
declare
    kept text[] := nullif(current_setting('walpost.session', true), '')::text[];
    marker text := current_setting('walpost.begin', true);
    now_set text[];
begin
    if num_nulls(l, i, n) > 0 then
        perform {schema}.refuse_null('undo_session',
            array['l (lock timeout)', 'i (idle timeout)', 'n (next)'],
            array[l::text, i::text, n::text]);
    end if;
    if n and current_setting('transaction_read_only') = 'on' then
        raise exception 'the handler made the transaction read-only' using errcode = 'WP006';
    end if;
    execute 'close all';
    unlisten *;
    if pg_my_temp_schema() <> 0 then
        discard temp;
    end if;
    perform {schema}.forget_session();
    reset all;
    if kept is not null then
        now_set := {schema}.session_values();
        if now_set is distinct from kept then
            perform set_config(s.name, s.kept, false)
                from unnest(array[
                    'session_authorization', 'role', 'search_path', 'TimeZone', 'DateStyle',
                    'IntervalStyle', 'client_encoding', 'application_name',
                    'standard_conforming_strings', 'bytea_output', 'extra_float_digits',
                    'statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout',
                    'default_transaction_isolation', 'default_transaction_read_only',
                    'default_transaction_deferrable', 'row_security', 'synchronous_commit',
                    'work_mem', 'plan_cache_mode'], kept, now_set) s (name, kept, now_set)
                where s.kept <> s.now_set;
        end if;
        perform set_config('walpost.session', kept::text, true);
    end if;
    perform set_config('walpost.begin', coalesce(marker, ''), true),
        set_config('lock_timeout', l::text, true),
        set_config('idle_in_transaction_session_timeout', i::text, true);
end $$;

-- Last of a batch. WP004: the handler ended the transaction in between. After `reset
-- all` in a handler the row tells: this transaction wrote it, or an earlier one did.
create or replace function {schema}.batch_end(m text) returns void language plpgsql as $$
declare
    marker text[];
begin
    if m is null then
        perform {schema}.refuse_null('batch_end', array['m (marker)'], array[m]);
    end if;
    if coalesce(current_setting('walpost.begin', true), '') <> m then
        marker := string_to_array(m, ':');
        if not (case cardinality(marker)
            when 3 then exists (select from {schema}.position q
                where q.id = marker[1]::int and q.epoch = marker[2]::bigint
                and q.next_offset = marker[3]::bigint and age(q.xmin) <= 0)
            when 2 then exists (select from {schema}.consumer_lane n
                where n.pos_id = marker[1]::int and n.pid = pg_backend_pid()
                and n.epoch = marker[2]::bigint and age(n.xmin) <= 0)
            else false end)
        then
            raise exception 'the handler ended the transaction' using errcode = 'WP004';
        end if;
    end if;
    perform set_config('walpost.end', m, true);
end $$;

-- Refuses a COMMIT that comes before batch_end. WP004. `set constraints all
-- immediate` in a handler calls it as well: it then arms the trigger again. COMMIT
-- calls it a second time within one message, and its text has the word. As its
-- owner, because the handler may have taken a role without rights here; so every
-- name is qualified.
create or replace function {schema}.at_commit() returns trigger language plpgsql
security definer as $$
declare
    moment constant text := pg_catalog.statement_timestamp()::pg_catalog.text;
    fired text[];
    times int;
begin
    if coalesce(pg_catalog.current_setting('walpost.end', true), '')
            operator(pg_catalog.<>) '' then
        return null;
    end if;
    -- when it was called last, and how often in that message
    fired := pg_catalog.string_to_array(pg_catalog.current_setting('walpost.fired', true), '#');
    times := case when fired[1] operator(pg_catalog.=) moment
        then fired[2]::pg_catalog.int4 else 0 end;
    if times operator(pg_catalog.>) 0 and (times operator(pg_catalog.>) 100
            or pg_catalog.current_query() operator(pg_catalog.~*) '\m(commit|end|prepare)\M') then
        raise exception 'COMMIT before the end of the batch' using errcode = 'WP004';
    end if;
    perform pg_catalog.set_config('walpost.fired',
        pg_catalog.concat(moment, '#', times operator(pg_catalog.+) 1), true);
    set constraints {schema}.whole deferred;
    if tg_table_name operator(pg_catalog.=) 'position' then
        update {schema}.position q set epoch = q.epoch where q.id operator(pg_catalog.=) new.id;
    else
        update {schema}.consumer_lane n set epoch = n.epoch
            where n.pos_id operator(pg_catalog.=) new.pos_id
            and n.pid operator(pg_catalog.=) new.pid;
    end if;
    return null;
end $$;
