-- Which publication the stream is decoded with: what is committed while the
-- outbox table is in none comes in no stream, however the slot stands.
alter table {schema}.checkpoint
    add column publication jsonb check (jsonb_typeof(publication) = 'object');

comment on column {schema}.checkpoint.publication is
    'Object ids of the publication and, by outbox table, of its membership; they change when either is made anew';
