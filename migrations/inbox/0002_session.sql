-- What a handler sets in its session does not reach the handler of another event.
-- `inbox_keep_session` comes first in its transaction, `reset session authorization;
-- reset role` and `inbox_undo_session` before its end.

-- Settings that a pooler or a driver may have set for the session before.
-- inbox_undo_session puts them back; all others go to the session's defaults.
create function {schema}.inbox_session_values() returns text[] language plpgsql stable as $$ begin
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

create function {schema}.inbox_keep_session(marker text) returns void language plpgsql as $$ begin
    perform set_config('walpost.session', {schema}.inbox_session_values()::text, true);
    perform pg_advisory_xact_lock_shared(hashtextextended('walpost inbox ' || marker, 0));
end $$;

-- What a rollback does not undo: advisory locks of the session, and statements that
-- SQL prepared. Those of the protocol are the client's.
create function {schema}.inbox_forget_session() returns void language plpgsql as $$
declare
    prepared text;
begin
    perform pg_advisory_unlock_all();
    for prepared in select name from pg_prepared_statements where from_sql loop
        execute format('deallocate %I', prepared);
    end loop;
end $$;

-- marker: what `walpost.inbox` was set to. After `reset all` in a handler
-- a lock tells whether the transaction is still the same one.
create function {schema}.inbox_undo_session(marker text, statement_ms bigint, idle_ms bigint)
returns void language plpgsql as $$
declare
    kept text[] := nullif(current_setting('walpost.session', true), '')::text[];
    found_marker text := coalesce(current_setting('walpost.inbox', true), '');
    now_set text[];
begin
    execute 'close all';
    unlisten *;
    if pg_my_temp_schema() <> 0 then
        discard temp;
    end if;
    perform {schema}.inbox_forget_session();
    reset all;
    if kept is not null then
        now_set := {schema}.inbox_session_values();
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
    end if;
    if found_marker = '' and exists (
        select from pg_locks l, hashtextextended('walpost inbox ' || marker, 0) h
        where l.locktype = 'advisory' and l.pid = pg_backend_pid() and l.objsubid = 1
            and l.classid::bigint = (h >> 32) & 4294967295 and l.objid::bigint = h & 4294967295) then
        found_marker := marker;
    end if;
    perform set_config('walpost.inbox', found_marker, true);
    perform set_config('idle_in_transaction_session_timeout', idle_ms::text, true);
    if current_setting('statement_timeout') = '0' then
        perform set_config('statement_timeout', statement_ms::text, true);
    end if;
end $$;
