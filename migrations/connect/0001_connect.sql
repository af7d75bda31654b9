-- Connectors as they were given over HTTP, for those who serve Kafka Connect's
-- interface.
--
-- Whoever serves holds an advisory lock and writes here on the session that has
-- it. Rows are changed by requests alone.
create table {schema}.connector (
    name text primary key check (octet_length(name) between 1 and 63),
    config jsonb not null check (jsonb_typeof(config) = 'object'),
    target text not null check (target in ('RUNNING', 'PAUSED', 'STOPPED')),
    created_at timestamptz not null default now(),
    changed_at timestamptz not null default now()
);

comment on table {schema}.connector is
    'Connectors given over HTTP: how each is configured, and what it is to do';
comment on column {schema}.connector.config is
    'Properties as they were given, each a text; secrets too, unless they are placeholders';
comment on column {schema}.connector.target is
    'RUNNING, PAUSED or STOPPED: what was asked for last, whatever it does';

-- Passwords are in it: for its owner, and for the role of who serves them, which
-- takes select, insert, update and delete.
revoke all on {schema}.connector from public;
