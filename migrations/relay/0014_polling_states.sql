-- Rows that were given up, of tables whose column of states has no value for that,
-- such as a boolean or a time of publication.
alter table {schema}.polling_attempts add column failed boolean not null default false;

comment on column {schema}.polling_attempts.failed is
    'The row was given up, and its table has no value for that; see `walpost requeue`';
