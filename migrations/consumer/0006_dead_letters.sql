-- consumer_parked: whether a parked event was also published to the topic of
-- dead letters.
--
-- parking: how many times the log has brought the record to be set aside: a
-- replay that parks it again, or comes to it after it was discarded, is another
-- time, with a dead letter of its own; a retry that fails again is none.
alter table {schema}.consumer_parked
    add column parking int not null default 1,
    add column dead_letter_topic text,
    add column dead_letter_at timestamptz,
    add column dead_letter_error text,
    add constraint consumer_parked_dead_letter_check check (
        num_nonnulls(dead_letter_topic, dead_letter_at) <> 1
        and (dead_letter_error is null or dead_letter_at is not null));

-- Those of which one is missing.
create index consumer_parked_dead_letters on {schema}.consumer_parked (pos_id, id)
    where state = 'parked' and (dead_letter_at is null or dead_letter_error is not null);

create function {schema}.parked_anew() returns trigger language plpgsql as $$
begin
    new.parking := old.parking + 1;
    new.dead_letter_topic := null;
    new.dead_letter_at := null;
    new.dead_letter_error := null;
    return new;
end $$;

-- Whoever writes the row, also one that knows of no dead letters.
create trigger anew before update on {schema}.consumer_parked
    for each row
    when (new.state <> 'discarded' and (old.state = 'discarded' or new.run <> old.run))
    execute function {schema}.parked_anew();

comment on column {schema}.consumer_parked.dead_letter_topic is
    'Topic that the dead letter was written to, or that refused it';
comment on column {schema}.consumer_parked.dead_letter_at is
    'When the dead letter was acknowledged, or refused; null while there is none';
comment on column {schema}.consumer_parked.dead_letter_error is
    'Why the topic takes no dead letter of the event; never contents of the event';
