-- Whose event an id is: docs/identity.md. UUIDs and ULIDs identify an event by
-- themselves; every other id is unique only within the table it was written to.

-- The source of an event, for `done`: empty for an id that is unique by itself,
-- else the header walpost-source, else the topic. source_header: null without one.
-- COLLATE "C": the answer is the same in every database.
create function {schema}.event_source(event_id text, source_header text, topic text) returns text
language plpgsql immutable parallel safe as $$
begin
    if num_nulls(event_id, topic) > 0 then
        perform {schema}.refuse_null('event_source', array['event_id', 'topic'],
            array[event_id, topic]);
    end if;
    if event_id collate "C" ~ ('(?i)^(?:(?!0{8}-0{4}-0{4}-)(?!f{8}-f{4}-f{4}-f{4}-f{12}$)'
            '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}'
            '|(?![0-9]{26}$)[0-7][0-9a-hjkmnp-tv-z]{25})$') then
        return '';
    end if;
    return coalesce(source_header, topic);
end $$;

-- Effects that were made before this rule keep their events: a copy of one takes
-- no effect. Of several sources of one event any row will do.
with moved as (
    delete from {schema}.done d
        where d.source <> '' and {schema}.event_source(d.event_id, d.source, '') = ''
        returning d.*)
insert into {schema}.done (consumer, source, event_id, pos_id, off, run, at)
    select m.consumer, '', m.event_id, m.pos_id, m.off, m.run, m.at from moved m
    on conflict do nothing;
