-- replay: what was published once more on purpose, by whom, and how far it came.
-- A row that says running and that no session holds belongs to a replay that was
-- killed; it can be gone on with.
create table {schema}.replay (
    id bigint generated always as identity primary key,
    pipeline text not null,
    source text not null,
    filter jsonb not null check (jsonb_typeof(filter) = 'object'),
    to_topic text,
    rate_per_s int not null check (rate_per_s > 0),
    boundary pg_snapshot not null,
    state text not null default 'running'
        check (state in ('running', 'stopped', 'failed', 'done')),
    detail text,
    selected bigint not null check (selected >= 0),
    sent bigint not null default 0 check (sent >= 0),
    unsendable bigint not null default 0 check (unsendable >= 0),
    last_seq bigint,
    token uuid not null,
    asked_by text not null default session_user,
    asked_from text,
    started_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp()
);

comment on table {schema}.replay is
    'Events that were published once more; see `walpost replay --list`';
comment on column {schema}.replay.source is
    'Outbox table';
comment on column {schema}.replay.filter is
    'Which of its rows were asked for';
comment on column {schema}.replay.to_topic is
    'Topic that was named; null for each event''s own';
comment on column {schema}.replay.boundary is
    'Snapshot that sees the rows that belong to it';
comment on column {schema}.replay.selected is
    'Rows that the filter found, without those that are parked';
comment on column {schema}.replay.sent is
    'Records that Kafka has acknowledged; those of a replay that was gone on with may count twice';
comment on column {schema}.replay.unsendable is
    'Rows that become no record, or one that the topic does not take';
comment on column {schema}.replay.last_seq is
    'All rows up to this seq are dealt with';
comment on column {schema}.replay.token is
    'Random name of the process that owns the row';
comment on column {schema}.replay.asked_by is
    'Role that asked for it';
comment on column {schema}.replay.asked_from is
    'User and host of the process that asked, as they say';

-- parked: events of a topic that does not exist, or that refuses the relay.
alter table {schema}.parked drop constraint parked_reason_check;
alter table {schema}.parked add constraint parked_reason_check check
    (reason in ('unroutable', 'oversize', 'rejected', 'undecodable', 'no_topic', 'behind'));
