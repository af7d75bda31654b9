-- A parked event may lack what its row in the outbox table has.
alter table {schema}.parked add column retry_from_table boolean not null default false;

comment on column {schema}.parked.retry_from_table is
    'With requested = retry: the relay reads the event from its row in the outbox table instead of from this one; false once it has done so';
