-- What a sender says of its breaker, so that it stands in a list and not in a log alone.
alter table {schema}.webhook_destination add column breaker_open_until timestamptz;

comment on column {schema}.webhook_destination.breaker_open_until is
    'A sender of it sends nothing but probes, until then or so; of several the last that said so';
