-- The outbox: one row per event, written by the application in the transaction
-- that changes its state. The first five columns have the names that Debezium's
-- Outbox Event Router expects.
create table {schema}.outbox (
    id uuid primary key default gen_random_uuid(),
    aggregatetype text not null,
    aggregateid text not null,
    type text not null,
    payload jsonb,
    headers jsonb,
    traceparent text,
    tracestate text,
    idempotency_key text,
    -- the clock and not the start of the transaction, so that the events of one
    -- transaction differ
    created_at timestamptz not null default clock_timestamp(),
    -- whether a row's transaction is done is asked of snapshots by its xid
    xid xid8 not null default pg_current_xact_id(),
    -- insert order within an aggregate, whose writers serialise
    seq bigint not null generated always as identity
);

create unique index outbox_idempotency_key on {schema}.outbox (idempotency_key)
    where idempotency_key is not null;
create index outbox_aggregate on {schema}.outbox (aggregatetype, aggregateid, created_at);

comment on table {schema}.outbox is
    'Events to publish, written in the transaction that changes the state';
comment on column {schema}.outbox.id is
    'Identity of the event, from writer to consumer';
comment on column {schema}.outbox.aggregatetype is
    'Kind of thing the event is about; by default it names the topic';
comment on column {schema}.outbox.aggregateid is
    'The thing the event is about: the record key; its events keep their order';
comment on column {schema}.outbox.type is
    'What happened';
comment on column {schema}.outbox.payload is
    'Value of the record; null for none';
comment on column {schema}.outbox.headers is
    'Headers of the record: an object of strings';
comment on column {schema}.outbox.traceparent is
    'W3C Trace Context of the writer';
comment on column {schema}.outbox.tracestate is
    'W3C Trace Context of the writer, its vendors'' part';
comment on column {schema}.outbox.idempotency_key is
    'At most one event per key; null for no such limit';
comment on column {schema}.outbox.created_at is
    'When the row was inserted; not the order of commit';
comment on column {schema}.outbox.xid is
    'Transaction that wrote the row; never written by the application';
comment on column {schema}.outbox.seq is
    'Insert order; never written by the application';

-- Inserts alone: deleting old rows is no event.
create publication {publication} for table {schema}.outbox
    with (publish = 'insert', publish_via_partition_root = true);
