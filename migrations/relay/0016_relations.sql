-- A name is what a table is called at one moment; rows, publication and stream go by
-- the object id. A row counts as published only in a relation that the stream brings.
alter table {schema}.checkpoint
    add column relations jsonb check (jsonb_typeof(relations) = 'object');

comment on column {schema}.checkpoint.relations is
    'Object ids of the outbox tables and of the partitions whose rows the stream brings; of a partition that was attached with rows, the transaction from which on it does';
