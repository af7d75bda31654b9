-- checkpoint: how far a pipeline has made everything durable. Every write names
-- the token of its run, so that a relay which was replaced cannot move it.
create table {schema}.checkpoint (
    pipeline text primary key,
    token uuid not null,
    generation bigint not null check (generation between 0 and 4294967295),
    system_id text,
    timeline int,
    slot text,
    mode text not null check (mode in ('idempotent', 'transactional')),
    confirmed_lsn pg_lsn,
    initial text not null default 'none'
        check (initial in ('none', 'creating', 'publish', 'skip', 'done')),
    initial_boundary text,
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
    'Timeline of confirmed_lsn';
comment on column {schema}.checkpoint.confirmed_lsn is
    'Every event of the transactions that end here or before is published or parked';
comment on column {schema}.checkpoint.initial is
    'How far the rows that are older than the slot have been dealt with';
comment on column {schema}.checkpoint.initial_boundary is
    'Snapshot that sees exactly the rows that are older than the slot';

-- parked: an event that could not be delivered, or that waits behind one.
create table {schema}.parked (
    id bigint generated always as identity primary key,
    pipeline text not null,
    generation bigint not null check (generation between 0 and 4294967295),
    commit_lsn pg_lsn not null,
    ordinal bigint not null check (ordinal between 0 and 4294967295),
    source text,
    event_id text,
    aggregate_type text,
    aggregate_id text,
    reason text not null
        check (reason in ('unroutable', 'oversize', 'rejected', 'undecodable', 'behind')),
    detail text,
    attempts int not null default 0,
    state text not null default 'open'
        check (state in ('open', 'sending', 'done', 'discarded')),
    topic text,
    record_key bytea,
    record_value bytea,
    record_headers jsonb,
    parked_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    unique (pipeline, generation, commit_lsn, ordinal)
);

create index parked_aggregate on {schema}.parked (pipeline, aggregate_type, aggregate_id)
    where state in ('open', 'sending');

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
    'Deliveries tried since it was parked';
