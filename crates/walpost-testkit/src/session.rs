/// A query that returns what a handler may leave in its session, as one text: users, settings, a
/// temporary table `left_over`, and how many statements, channels, advisory locks `7` and cursors
/// `left_over` there are. Without leftovers it ends with ` - 0 0 0 0`.
pub const SESSION: &str = "select concat_ws(' ', current_user, session_user, \
    current_setting('search_path'), current_setting('timezone'), \
    current_setting('statement_timeout'), current_setting('lock_timeout'), \
    coalesce(current_setting('app.tenant', true), ''), \
    current_setting('default_transaction_isolation'), \
    coalesce(to_regclass('pg_temp.left_over')::text, '-'), \
    (select count(*) from pg_prepared_statements where from_sql), \
    (select count(*) from pg_listening_channels()), \
    (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() \
     and classid = 0 and objid = 7), \
    (select count(*) from pg_cursors where name = 'left_over'))";
