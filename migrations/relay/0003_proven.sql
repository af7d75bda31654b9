-- What is proven: a snapshot whose every row is published or parked, and where
-- the topics have to be read from to find what it does not see.
alter table {schema}.checkpoint
    add column proven jsonb check (jsonb_typeof(proven) = 'object'),
    add column pending jsonb check (jsonb_typeof(pending) = 'object'),
    add column recovery jsonb check (jsonb_typeof(recovery) = 'object'),
    add column recovery_requested jsonb check (jsonb_typeof(recovery_requested) = 'object'),
    add column tables text[],
    add column has_messages boolean not null default false;

comment on column {schema}.checkpoint.proven is
    'A snapshot, the WAL position that proved it, and by topic the lowest offsets that may hold an event it does not see: every outbox row that the snapshot sees is published or parked';
comment on column {schema}.checkpoint.pending is
    'The next such snapshot, until confirmed_lsn is at or above its WAL position';
comment on column {schema}.checkpoint.recovery is
    'While the slot is replaced: what the new one does not bring';
comment on column {schema}.checkpoint.recovery_requested is
    'Somebody wants a lost slot to be replaced by the next start';
comment on column {schema}.checkpoint.tables is
    'Outbox tables that the pipeline reads, as SQL names; null before its first start with this column';
comment on column {schema}.checkpoint.has_messages is
    'The pipeline has published messages of pg_logical_emit_message, which are in no table';

-- Rows that have left the outbox, where retention keeps them.
create table {schema}.outbox_archive (
    id uuid not null,
    aggregatetype text not null,
    aggregateid text not null,
    type text not null,
    payload jsonb,
    headers jsonb,
    traceparent text,
    tracestate text,
    idempotency_key text,
    created_at timestamptz not null,
    xid xid8 not null,
    seq bigint not null,
    archived_at timestamptz not null default clock_timestamp()
);

-- Whole events are in it, as in `parked`.
revoke all on {schema}.outbox_archive from public;

create index outbox_archive_archived_at on {schema}.outbox_archive using brin (archived_at);

comment on table {schema}.outbox_archive is
    'Rows that have left the outbox; see `walpost prune`';
comment on column {schema}.outbox_archive.archived_at is
    'When the row left the outbox';
