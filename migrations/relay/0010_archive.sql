-- Beside an outbox in partitions, an archive in partitions: a day of the outbox
-- becomes a day of the archive as it is, and no row is copied. Everywhere else
-- the archive stays as it is.
do $$
declare
    home oid := (select typnamespace from pg_type
                 where oid = pg_typeof(null::{schema}.checkpoint));
begin
    if not exists (select from pg_class
                   where relnamespace = home and relname = 'outbox' and relkind = 'p')
    then
        return;
    end if;
    if exists (select from {schema}.outbox_archive) then
        return;
    end if;
    drop table {schema}.outbox_archive;
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
    ) partition by range (created_at);
    revoke all on {schema}.outbox_archive from public;
    create table {schema}.outbox_archive_default partition of {schema}.outbox_archive default;
    revoke all on {schema}.outbox_archive_default from public;
    comment on table {schema}.outbox_archive is
        'Rows that have left the outbox; see `walpost prune`';
    comment on column {schema}.outbox_archive.archived_at is
        'When the row left the outbox';
end $$;
