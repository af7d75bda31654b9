-- checkpoint: how far a pipeline has made everything durable. Every write names
-- the token of its run, so that a relay which was replaced cannot move it.
create table {schema}.checkpoint (
    pipeline text primary key,
    token uuid not null,
    generation bigint not null check (generation between 0 and 4294967295),
    system_id text not null,
    timeline bigint not null check (timeline between 1 and 4294967295),
    slot text not null,
    confirmed_lsn pg_lsn not null,
    initial text not null check (initial in ('creating', 'publish', 'done')),
    initial_boundary text check ((initial_boundary is not null) = (initial = 'publish')),
    floors jsonb not null default '{}' check (jsonb_typeof(floors) = 'object'),
    clean boolean not null default false,
    fence text,
    updated_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

comment on table {schema}.checkpoint is
    'How far each pipeline has published; written by its relay';
comment on column {schema}.checkpoint.token is
    'Random name of the run that owns the row';
comment on column {schema}.checkpoint.generation is
    'Random name of the slot''s history; positions of two generations are never compared';
comment on column {schema}.checkpoint.system_id is
    'system_identifier of the server that has the slot';
comment on column {schema}.checkpoint.timeline is
    'Timeline of the WAL that confirmed_lsn lies in';
comment on column {schema}.checkpoint.confirmed_lsn is
    'Every event of the transactions that end here or before is published or parked';
comment on column {schema}.checkpoint.initial is
    'How far the rows that are older than the slot have been dealt with';
comment on column {schema}.checkpoint.floors is
    'By topic its id and, by partition, the lowest offset that may hold an event above confirmed_lsn';
comment on column {schema}.checkpoint.clean is
    'The last run stopped in order, with nothing on its way';
comment on column {schema}.checkpoint.fence is
    'transactional.id of the run that owns the row, by which a successor fences it off; null without';
comment on column {schema}.checkpoint.initial_boundary is
    'Snapshot that sees exactly the rows that are older than the slot';

-- parked: an event that could not be delivered, or that waits behind one. The
-- row keeps the event, as the record that it would have become or else as what
-- it was made of, so that it can be sent on when WAL and outbox row are gone.
create table {schema}.parked (
    id bigint generated always as identity primary key,
    pipeline text not null,
    generation bigint not null check (generation between 0 and 4294967295),
    commit_lsn pg_lsn not null,
    ordinal bigint not null check (ordinal between 0 and 4294967295),
    source text not null,
    event_id text,
    aggregate_type text,
    aggregate_id text,
    reason text not null
        check (reason in ('unroutable', 'oversize', 'rejected', 'undecodable', 'behind')),
    detail text,
    attempts int not null default 0,
    state text not null default 'open'
        check (state in ('open', 'sending', 'done', 'discarded')),
    requested text check (requested in ('retry', 'discard')),
    requested_at timestamptz,
    sending_floor jsonb check ((sending_floor is not null) = (state = 'sending')),
    topic text,
    record_partition int,
    record_key bytea,
    record_value bytea,
    record_headers jsonb,
    record_timestamp_ms bigint,
    row_columns jsonb,
    message_content bytea,
    parked_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    check (num_nonnulls(topic, row_columns, message_content) <= 1),
    check (requested is null or state in ('open', 'sending'))
);

-- The id counts, because rows that are deleted during an initial load shift the
-- ordinals of the others. Hashes, because ids have any length and index entries
-- have not.
create unique index parked_event on {schema}.parked
    (pipeline, generation, commit_lsn, ordinal, coalesce(hashtextextended(event_id, 0), 0));
-- In the order in which an aggregate's events are sent on.
create index parked_aggregate on {schema}.parked
    (pipeline, hashtextextended(aggregate_id, 0), coalesce(hashtextextended(aggregate_type, 0), 0),
        generation, commit_lsn, ordinal)
    where state in ('open', 'sending');
create index parked_requested on {schema}.parked (pipeline, id) where requested is not null;
create index parked_sending on {schema}.parked (pipeline, id) where state = 'sending';

-- Whole events are in it: for its owner, and for whom the owner grants it.
revoke all on {schema}.parked from public;

comment on table {schema}.parked is
    'Events that could not be delivered; see `walpost parked`';
comment on column {schema}.parked.commit_lsn is
    'Position of the event: where its transaction''s commit record begins';
comment on column {schema}.parked.ordinal is
    'Position of the event within its transaction, from 0';
comment on column {schema}.parked.source is
    'Outbox table, or prefix of the logical message';
comment on column {schema}.parked.reason is
    'Why; behind: an earlier event of its aggregate is parked';
comment on column {schema}.parked.detail is
    'What was wrong; never contents of the event';
comment on column {schema}.parked.attempts is
    'Deliveries that were refused';
comment on column {schema}.parked.requested is
    'What somebody wants the relay to do with the event; nothing once it has done so';
comment on column {schema}.parked.sending_floor is
    'While it is sent on: the topic and its id, the partition, and the lowest offset that it may have';
comment on column {schema}.parked.topic is
    'Topic of the record; null where the event becomes no record, or was too large to keep';
comment on column {schema}.parked.record_partition is
    'Partition that the event names; null for that of the key';
comment on column {schema}.parked.record_headers is
    'Headers of the record in order: name, then text, or hex where it is no text, or null';
comment on column {schema}.parked.row_columns is
    'Columns of a row that becomes no record, in order: name and type, then text, or hex, or null';
comment on column {schema}.parked.message_content is
    'Content of a logical message that becomes no record';
