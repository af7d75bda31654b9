-- id_space: the ids of one table are unique among themselves. Their id space tells
-- them apart from equal ids of other tables, whichever pipeline publishes them: it
-- is the value of the header walpost-source. By object id, so that a table that is
-- renamed, upgraded by pg_upgrade or restored with this table keeps it.
create table {schema}.id_space (
    id uuid primary key default gen_random_uuid(),
    outbox regclass,
    scope text not null check (scope in ('table', 'topic')),
    only_walpost boolean not null,
    dropped_at timestamptz,
    created_at timestamptz not null default clock_timestamp()
);

create unique index id_space_outbox on {schema}.id_space (coalesce(outbox::oid, 0::oid));

comment on table {schema}.id_space is
    'Which ids are unique among themselves: a row per outbox table; see docs/identity.md';
comment on column {schema}.id_space.id is
    'Value of the header walpost-source of the table''s events';
comment on column {schema}.id_space.outbox is
    'The table, for partitions their root; null for messages of pg_logical_emit_message';
comment on column {schema}.id_space.scope is
    'What makes ids unique that are not globally unique: table sends the header walpost-source, topic does not';
comment on column {schema}.id_space.only_walpost is
    'No other program has published rows that are in the table, nor Walpost under another source';
comment on column {schema}.id_space.dropped_at is
    'The table was found missing; another table with its object id gets another id';

-- A parked event keeps its id space: its table may be dropped before it is sent.
alter table {schema}.parked add column id_space uuid;

comment on column {schema}.parked.id_space is
    'Id space of the event''s table; null for events of an earlier version';

-- Events of two tables may have one id.
drop index {schema}.parked_event;
create unique index parked_event on {schema}.parked
    (pipeline, generation, commit_lsn, ordinal, coalesce(hashtextextended(event_id, 0), 0),
        coalesce(id_space, '00000000-0000-0000-0000-000000000000'));
