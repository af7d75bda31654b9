-- move: rows that were handed from one pipeline to another. A row belongs to
-- whoever had rows like it when it was committed, so the entries stay.
create table {schema}.move (
    id bigint generated always as identity primary key,
    from_pipeline text not null,
    to_pipeline text not null check (to_pipeline <> from_pipeline),
    tables jsonb not null check (jsonb_typeof(tables) = 'object'),
    boundary pg_snapshot not null,
    xid xid8 not null default pg_current_xact_id(),
    moved_at timestamptz not null default clock_timestamp(),
    asked_by text not null default session_user,
    crossed_at timestamptz
);

comment on table {schema}.move is
    'Rows that were handed from one pipeline to another; written by `walpost pipeline move`';
comment on column {schema}.move.tables is
    'By outbox table the row filters of both pipelines, each before and after; null for all rows';
comment on column {schema}.move.boundary is
    'Snapshot that sees exactly the rows that were committed before';
comment on column {schema}.move.xid is
    'Transaction that changed both publications; its commit is the boundary in the stream';
comment on column {schema}.move.crossed_at is
    'When the receiver went on behind the boundary, as the giver had published all before it';
