-- Webhooks that are sent: a row for each event and destination, and what became
-- of it. A delivery goes from state to state as webhook_guard allows, by whomever
-- it is changed.
--
-- WP010: an illegal change. WP012: the row may not leave.
create table {schema}.webhook_destination (
    name text collate "C" primary key check (octet_length(name) between 1 and 128),
    state text not null default 'active' check (state in ('active', 'disabled')),
    reason text,
    changed_at timestamptz not null default clock_timestamp(),
    check ((state = 'disabled') = (reason is not null))
);

create table {schema}.webhook_delivery (
    id bigint generated always as identity primary key,
    destination text collate "C" not null check (octet_length(destination) between 1 and 128),
    event_id text collate "C" not null check (octet_length(event_id) between 1 and 512),
    event_type text check (octet_length(event_type) <= 512),
    idempotency_key text not null check (octet_length(idempotency_key) between 1 and 512),
    path text check (octet_length(path) <= 8000),
    content_type text check (octet_length(content_type) <= 512),
    body bytea,
    retry_limit int check (retry_limit >= 0),
    retry_wait_ms bigint check (retry_wait_ms >= 0),
    created_at timestamptz not null default clock_timestamp(),
    state text not null default 'pending' check (state in
        ('pending', 'sending', 'delivered', 'failed', 'held', 'unknown')),
    attempts int not null default 0 check (attempts >= 0),
    -- raised by each claim: whoever has an older one has lost the delivery
    fence bigint not null default 0,
    lease_until timestamptz,
    claimed_by text,
    next_attempt_at timestamptz default clock_timestamp(),
    finished_at timestamptz,
    outcome text,
    -- in this order an event's deliveries are found as well
    unique (event_id, destination),
    check ((state = 'pending') = (next_attempt_at is not null)),
    check ((state = 'sending') = (lease_until is not null)),
    check ((state in ('delivered', 'failed')) = (finished_at is not null)),
    check (body is not null or state = 'delivered')
) with (fillfactor = 80);

create index webhook_due on {schema}.webhook_delivery (destination, next_attempt_at, id)
    where state = 'pending';
create index webhook_lease on {schema}.webhook_delivery (destination, lease_until)
    where state = 'sending';
-- What waits for somebody, and what may leave.
create index webhook_set_aside on {schema}.webhook_delivery (destination, id)
    where state in ('failed', 'held', 'unknown');
create index webhook_finished on {schema}.webhook_delivery (finished_at)
    where state = 'delivered';

-- What came of each attempt. Its number is the fence that it had.
create table {schema}.webhook_attempt (
    delivery bigint not null references {schema}.webhook_delivery on delete cascade,
    number bigint not null,
    ended_at timestamptz not null default clock_timestamp(),
    outcome text not null,
    status int,
    elapsed_ms int not null,
    detail text,
    response bytea,
    primary key (delivery, number)
);

-- Bodies and answers are in them: for their owner, and for whom webhook_grant names.
revoke all on {schema}.webhook_delivery, {schema}.webhook_attempt from public;

comment on table {schema}.webhook_destination is
    'Where webhooks go; what is for a disabled one is held';
comment on table {schema}.webhook_delivery is
    'One for each event and destination, and what became of it; see `walpost webhook`';
comment on column {schema}.webhook_delivery.idempotency_key is
    'What the receiver knows it by, the same with each attempt';
comment on column {schema}.webhook_delivery.path is
    'Path and query behind those of the destination';
comment on column {schema}.webhook_delivery.retry_limit is
    'Retries behind the first attempt; null for those of the destination';
comment on column {schema}.webhook_delivery.retry_wait_ms is
    'Wait before each of them; null for those of the destination';
comment on column {schema}.webhook_delivery.attempts is
    'Claims since it was created or an operator last asked for a retry; each is counted before it is made';
comment on column {schema}.webhook_delivery.lease_until is
    'While sending: then the attempt is given up, and nobody knows what became of it';
comment on column {schema}.webhook_delivery.outcome is
    'Of the last attempt';
comment on column {schema}.webhook_attempt.response is
    'What was read of the body of an answer that was no success';

-- The one table of transitions.
create function {schema}.webhook_guard() returns trigger language plpgsql as $$
declare
    moment constant timestamptz := clock_timestamp();
    step text;
begin
    if tg_op = 'INSERT' then
        if new.state <> 'pending' or new.attempts <> 0 or new.fence <> 0
            or new.claimed_by is not null or new.outcome is not null or new.body is null
            or new.next_attempt_at is null
        then
            raise exception 'a delivery begins as pending, with its body' using errcode = 'WP010';
        end if;
        new.created_at := moment;
        -- Pending for a disabled destination as well: by the time that this commits it
        -- may be enabled, and nobody would release it. It is not claimed meanwhile.
        return new;
    end if;
    if tg_op = 'DELETE' then
        if old.state not in ('delivered', 'failed') then
            raise exception 'a delivery that is % may not leave', old.state using errcode = 'WP012';
        end if;
        return old;
    end if;
    if (new.id, new.destination, new.event_id, new.event_type, new.idempotency_key, new.path,
            new.content_type, new.retry_limit, new.retry_wait_ms, new.created_at)
        is distinct from
        (old.id, old.destination, old.event_id, old.event_type, old.idempotency_key, old.path,
            old.content_type, old.retry_limit, old.retry_wait_ms, old.created_at)
    then
        raise exception 'what is delivered does not change' using errcode = 'WP010';
    end if;
    step := old.state || ' to ' || new.state;
    case
    when step = 'pending to sending'
        and old.next_attempt_at <= moment and new.lease_until > moment
        and new.fence = old.fence + 1 and new.attempts = old.attempts + 1
    then
        null;
    when step in ('sending to delivered', 'sending to failed', 'sending to pending',
            'sending to unknown', 'sending to held')
        and new.fence = old.fence and new.attempts = old.attempts
        and new.outcome is not null
    then
        null;
    when step in ('pending to held', 'held to pending', 'pending to pending')
        and new.fence = old.fence and new.attempts = old.attempts
    then
        null;
    -- By somebody who has looked.
    when step in ('failed to pending', 'unknown to pending', 'held to pending')
        and new.fence = old.fence and new.attempts = 0
    then
        null;
    when step in ('unknown to delivered', 'unknown to failed', 'held to failed')
        and new.fence = old.fence and new.attempts = old.attempts
    then
        null;
    when step = 'delivered to delivered'
        and (new.finished_at, new.attempts, new.fence, new.claimed_by, new.outcome)
            is not distinct from
            (old.finished_at, old.attempts, old.fence, old.claimed_by, old.outcome)
    then
        return new;
    else
        raise exception 'a delivery does not go from % this way', step using errcode = 'WP010';
    end case;
    if new.state <> 'sending' then
        new.lease_until := null;
    end if;
    if new.state <> 'pending' then
        new.next_attempt_at := null;
    end if;
    new.finished_at := case when new.state in ('delivered', 'failed') then moment end;
    return new;
end $$;

create trigger webhook_guard before insert or update or delete on {schema}.webhook_delivery
    for each row execute function {schema}.webhook_guard();

-- Apart, so that other updates need not read a body that is stored aside.
create function {schema}.webhook_guard_body() returns trigger language plpgsql as $$
begin
    if new.body is not null or old.state <> 'delivered' then
        raise exception 'a body does not change, and leaves once it is delivered'
            using errcode = 'WP010';
    end if;
    return new;
end $$;

create trigger webhook_guard_body before update of body on {schema}.webhook_delivery
    for each row execute function {schema}.webhook_guard_body();

-- What a role needs: reader (everything but bodies and answers), writer (who
-- creates deliveries), sender, operator, pruner. A reader loses whatever else it
-- had on the tables.
create function {schema}.webhook_grant(kind text, grantee name) returns void language plpgsql as $$
declare
    seen constant text := 'id, destination, event_id, event_type, idempotency_key, retry_limit, '
        'retry_wait_ms, created_at, state, attempts, fence, lease_until, claimed_by, '
        'next_attempt_at, finished_at, outcome';
    noted constant text := 'delivery, number, ended_at, outcome, status, elapsed_ms, detail';
    changed constant text := 'state, attempts, fence, lease_until, claimed_by, next_attempt_at, '
        'finished_at, outcome';
    place text;
    deliveries text;
    attempts text;
    destinations text;
    granted text;
begin
    select t.typnamespace::regnamespace::text, t.typrelid::regclass::text
        into place, deliveries
        from pg_catalog.pg_type t where t.oid = pg_typeof(null::{schema}.webhook_delivery);
    select t.typrelid::regclass::text into attempts
        from pg_catalog.pg_type t where t.oid = pg_typeof(null::{schema}.webhook_attempt);
    select t.typrelid::regclass::text into destinations
        from pg_catalog.pg_type t where t.oid = pg_typeof(null::{schema}.webhook_destination);
    granted := case kind
        when 'reader' then format('select (%s)', seen)
        when 'writer' then
            'insert (destination, event_id, event_type, idempotency_key, path, content_type, body, '
            'retry_limit, retry_wait_ms, next_attempt_at), select (id, event_id, destination, state)'
        when 'sender' then format('select, update (%s)', changed)
        when 'operator' then format('select (%s), update (%s)', seen, changed)
        when 'pruner' then format('select (%s), update (body), delete', seen)
    end;
    if granted is null then
        raise exception 'no kind of role is %; it is reader, writer, sender, operator or pruner',
            kind;
    end if;
    if kind = 'reader' then
        execute format('revoke all on %s, %s, %s from %I', deliveries, attempts, destinations, grantee);
    end if;
    execute format('grant usage on schema %s to %I', place, grantee);
    execute format('grant %s on %s to %I', granted, deliveries, grantee);
    execute format('grant select on %s to %I', destinations, grantee);
    if kind in ('sender', 'operator') then
        execute format('grant insert, update on %s to %I', destinations, grantee);
    end if;
    if kind = 'sender' then
        execute format('grant select, insert on %s to %I', attempts, grantee);
    elsif kind <> 'writer' then
        execute format('grant select (%s) on %s to %I', noted, attempts, grantee);
    end if;
end $$;
