-- What brings the pipeline's events, so that a relay which is configured for the
-- other source does not start, and a switch that was begun can be finished.
alter table {schema}.checkpoint
    add column source text not null default 'wal' check (source in ('wal', 'polling')),
    add column switch jsonb,
    add check (switch is null or source = 'polling' and jsonb_typeof(switch) = 'object');

comment on column {schema}.checkpoint.source is
    'Whether the pipeline reads the WAL or polls its outbox table; see `walpost source switch`';
comment on column {schema}.checkpoint.switch is
    'While the source is switched: to which one, and the snapshot and WAL position that part what the one has published from what the other will';
