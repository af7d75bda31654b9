-- consumer_halted: partitions that are halted until an operator acts, as the member
-- that had claimed them last says. The row goes with the next claim.
create table {schema}.consumer_halted (
    pos_id int primary key,
    -- of that member's claim
    epoch bigint not null,
    reason text not null,
    at timestamptz not null default now()
);

-- A claim, and no reset by an operator: after that the member still has to be
-- restarted.
create function {schema}.claimed_anew() returns trigger language plpgsql as $$
begin
    if current_setting('walpost.end', true) = 'claim' then
        delete from {schema}.consumer_halted h where h.pos_id = new.id;
    end if;
    return null;
end $$;

create trigger claimed after update of epoch on {schema}.position
    for each row when (new.epoch > old.epoch) execute function {schema}.claimed_anew();
