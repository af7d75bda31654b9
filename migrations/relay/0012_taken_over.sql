-- Where another program had come that read the slot before: of one transaction
-- it may have published the first events.
alter table {schema}.checkpoint add column taken_over_at text
    check (taken_over_at ~ '^[0-9A-F]+/[0-9A-F]+:[0-9]+$');

comment on column {schema}.checkpoint.taken_over_at is
    'Last event that the program has published which read the slot before, as walpost-position has it without the generation; null where that was the last one of its transaction; see `walpost take-over`';
