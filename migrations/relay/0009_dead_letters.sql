-- parked: whether an event was also published to the topic of dead letters.
alter table {schema}.parked
    add column dead_letter_topic text,
    add column dead_letter_at timestamptz,
    add column dead_letter_error text,
    add constraint parked_dead_letter_check check (
        num_nonnulls(dead_letter_topic, dead_letter_at) <> 1
        and (dead_letter_error is null or dead_letter_at is not null));

-- Those of which one is missing.
create index parked_dead_letter on {schema}.parked (pipeline, id)
    where state in ('open', 'sending')
        and (dead_letter_at is null or dead_letter_error is not null);

comment on column {schema}.parked.dead_letter_topic is
    'Topic that the dead letter was written to, or that refused it';
comment on column {schema}.parked.dead_letter_at is
    'When the dead letter was acknowledged, or refused; null while there is none';
comment on column {schema}.parked.dead_letter_error is
    'Why the topic takes no dead letter of the event; never contents of the event';
