-- polling_attempts: what is known of a row's failed attempts, for pipelines that
-- poll their outbox. A row has no entry until an attempt has failed, and none
-- once it is published. Columns of the outbox table win where it has them.
create table {schema}.polling_attempts (
    pipeline text not null,
    row_id text not null,
    attempts int not null check (attempts >= 0),
    refused int not null check (refused between 0 and attempts),
    next_attempt_at timestamptz not null,
    last_error text not null,
    updated_at timestamptz not null default clock_timestamp(),
    primary key (pipeline, row_id)
);

comment on table {schema}.polling_attempts is
    'Failed attempts to publish rows of a polled outbox; written by `walpost run`';
comment on column {schema}.polling_attempts.row_id is
    'The row''s id, as text';
comment on column {schema}.polling_attempts.attempts is
    'Attempts that failed, for whatever reason';
comment on column {schema}.polling_attempts.refused is
    'Those of them that failed for the row''s own sake';
comment on column {schema}.polling_attempts.next_attempt_at is
    'The row is not tried before';
comment on column {schema}.polling_attempts.last_error is
    'Why the last attempt failed; never contents of the event';
