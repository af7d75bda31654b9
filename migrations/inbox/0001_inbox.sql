-- The inbox: a log of events received from outside, each once, and what became
-- of it. The row of an event goes from state to state as inbox_guard allows, by
-- whomever it is changed.
--
-- WP010: an illegal change. WP011: the claim was given up. WP012: the row may
-- not leave. WP014: the handler ended its transaction.
create table {schema}.inbox (
    seq bigint generated always as identity primary key,
    source text collate "C" not null default '' check (octet_length(source) <= 128),
    event_id text collate "C" not null check (octet_length(event_id) between 1 and 512),
    event_type text not null check (octet_length(event_type) between 1 and 512),
    related_reference text check (octet_length(related_reference) <= 2048),
    received_at timestamptz not null default clock_timestamp(),
    processed_at timestamptz,
    processing_state text not null default 'pending' check (processing_state in
        ('pending', 'processing', 'succeeded', 'ignored', 'failed', 'review')),
    attempts int not null default 0 check (attempts >= 0),
    -- raised by each claim: whoever holds an older one has given the event up
    fence bigint not null default 0,
    lease_until timestamptz,
    claimed_by text,
    next_attempt_at timestamptz default clock_timestamp(),
    reason text,
    payload_hash bytea not null,
    payload_bytes int not null,
    payload bytea,
    -- for those who may not read it
    has_payload boolean not null generated always as (payload is not null) stored,
    -- in this order an id is also found without its source
    unique (event_id, source),
    check ((processing_state = 'processing') = (lease_until is not null)),
    check ((processing_state in ('succeeded', 'ignored')) = (processed_at is not null)),
    check (case
        when processing_state in ('pending', 'processing') then next_attempt_at is not null
        when processing_state = 'failed' then reason is not null
        else next_attempt_at is null
    end)
) with (fillfactor = 80);

-- What may be claimed and the first that is open: of one source, whose queries
-- shall not walk through the backlog of another one; and of all, whose queries
-- name their fence, so that no other takes these for its own.
create index inbox_due_of_source on {schema}.inbox (source, next_attempt_at, seq)
    where processing_state in ('pending', 'failed') and next_attempt_at is not null;
create index inbox_due on {schema}.inbox (next_attempt_at, seq)
    where processing_state in ('pending', 'failed') and next_attempt_at is not null
        and fence >= 0;
create index inbox_open_of_source on {schema}.inbox (source, seq)
    where next_attempt_at is not null;
create index inbox_open on {schema}.inbox (seq)
    where next_attempt_at is not null and fence >= 0;
-- What is stuck, what an operator decides about, what may leave.
create index inbox_lease on {schema}.inbox (lease_until) where processing_state = 'processing';
create index inbox_review on {schema}.inbox (seq) where processing_state = 'review';
create index inbox_given_up on {schema}.inbox (seq)
    where processing_state = 'failed' and next_attempt_at is null;
create index inbox_processed on {schema}.inbox (processed_at)
    where processing_state in ('succeeded', 'ignored');
create index inbox_payload on {schema}.inbox (processed_at)
    where processing_state in ('succeeded', 'ignored') and has_payload;

-- Payloads are in it: for its owner, and for whom inbox_grant names.
revoke all on {schema}.inbox from public;

-- For how long a key is remembered at least, once its event is done.
create table {schema}.inbox_window (
    one boolean primary key default true check (one),
    dedup_window interval not null default '90 days'
        check (dedup_window between '1 day' and '10 years')
);
insert into {schema}.inbox_window default values;

comment on table {schema}.inbox is
    'Events received from outside, each once; see `walpost inbox`';
comment on column {schema}.inbox.source is
    'Who sends; an event_id is unique within it';
comment on column {schema}.inbox.event_id is
    'Identity of the event as its sender gives it';
comment on column {schema}.inbox.event_type is
    'What happened; selects what is done';
comment on column {schema}.inbox.related_reference is
    'What the event is about, for support; no secret';
comment on column {schema}.inbox.attempts is
    'Claims that count, since it was received or an operator last asked for a retry';
comment on column {schema}.inbox.lease_until is
    'While processing: then the claim is given up';
comment on column {schema}.inbox.next_attempt_at is
    'When it may be claimed; null where nobody but an operator lets it go on';
comment on column {schema}.inbox.reason is
    'Why it failed, was ignored or waits for review; never contents of the event';
comment on column {schema}.inbox.payload_hash is
    'SHA-256 of the payload, also when that is gone';
comment on column {schema}.inbox.payload is
    'As it was received; null once it was pruned';
comment on table {schema}.inbox_window is
    'How long a key is remembered at least; longer than any sender repeats itself';

-- The one table of transitions. Times and hashes are the server's own.
create function {schema}.inbox_guard() returns trigger language plpgsql as $$
declare
    moment constant timestamptz := clock_timestamp();
    step text;
begin
    if tg_op = 'INSERT' then
        if new.processing_state <> 'pending' or new.attempts <> 0 or new.fence <> 0
            or new.claimed_by is not null or new.reason is not null or new.payload is null
        then
            raise exception 'an event begins as pending, with its payload' using errcode = 'WP010';
        end if;
        new.received_at := moment;
        new.next_attempt_at := moment;
        new.payload_hash := sha256(new.payload);
        new.payload_bytes := octet_length(new.payload);
        return new;
    end if;
    if tg_op = 'DELETE' then
        if old.processing_state not in ('succeeded', 'ignored') then
            raise exception 'an event that is % may not leave', old.processing_state
                using errcode = 'WP012';
        end if;
        if old.processed_at > moment - coalesce(
            (select w.dedup_window from {schema}.inbox_window w), interval '10 years')
        then
            raise exception 'an event may not leave within the window in which its key is kept'
                using errcode = 'WP012';
        end if;
        return old;
    end if;
    if (new.seq, new.source, new.event_id, new.event_type, new.related_reference,
            new.received_at, new.payload_hash, new.payload_bytes)
        is distinct from
        (old.seq, old.source, old.event_id, old.event_type, old.related_reference,
            old.received_at, old.payload_hash, old.payload_bytes)
    then
        raise exception 'what was received does not change' using errcode = 'WP010';
    end if;
    step := old.processing_state || ' to ' || new.processing_state;
    case
    when step in ('pending to processing', 'failed to processing')
        and old.next_attempt_at <= moment
        and new.fence = old.fence + 1 and new.attempts = old.attempts + 1
        and new.next_attempt_at = old.next_attempt_at and new.lease_until > moment
    then
        null;
    when step in ('processing to succeeded', 'processing to failed')
        and new.fence = old.fence and new.claimed_by is not distinct from old.claimed_by
    then
        -- Only an expired lease is said to be one, and nobody else ends it.
        if (old.lease_until <= moment) is distinct from
            (new.processing_state = 'failed' and new.reason = 'lease_expired')
        then
            raise exception 'the claim was given up' using errcode = 'WP011';
        end if;
        new.lease_until := null;
        if new.processing_state = 'succeeded' then
            -- Who has not begun with this fence in this transaction, has no effect in it.
            if coalesce(current_setting('walpost.inbox', true), '')
                <> old.seq || ':' || old.fence
            then
                raise exception 'the handler ended the transaction' using errcode = 'WP014';
            end if;
            new.processed_at := moment;
            new.next_attempt_at := null;
            new.reason := null;
            new.attempts := old.attempts;
        elsif new.attempts not in (old.attempts, old.attempts - 1) then
            raise exception 'attempts do not go from % to %', old.attempts, new.attempts
                using errcode = 'WP010';
        end if;
    when step in ('pending to ignored', 'review to ignored', 'pending to review')
        and new.fence = old.fence and new.attempts = old.attempts
        and new.claimed_by is not distinct from old.claimed_by
    then
        new.next_attempt_at := null;
        if new.processing_state = 'ignored' then
            new.processed_at := moment;
        end if;
    when step = 'review to pending' and new.fence = old.fence then
        new.attempts := 0;
        new.next_attempt_at := moment;
    when step = 'failed to failed'
        and new.fence = old.fence and new.attempts in (old.attempts, 0)
        and new.claimed_by is not distinct from old.claimed_by
    then
        null;
    when step in ('succeeded to succeeded', 'ignored to ignored')
        and (new.processed_at, new.attempts, new.fence, new.claimed_by, new.reason)
            is not distinct from
            (old.processed_at, old.attempts, old.fence, old.claimed_by, old.reason)
    then
        null;
    else
        raise exception 'an event does not go from % this way', step
            using errcode = 'WP010';
    end case;
    return new;
end $$;

create trigger inbox_guard before insert or update or delete on {schema}.inbox
    for each row execute function {schema}.inbox_guard();

-- Apart, so that other updates need not read a payload that is stored aside.
create function {schema}.inbox_guard_payload() returns trigger language plpgsql as $$
begin
    if new.payload is not null or old.processing_state not in ('succeeded', 'ignored') then
        raise exception 'a payload does not change, and leaves once its event is done'
            using errcode = 'WP010';
    end if;
    return new;
end $$;

create trigger inbox_guard_payload before update of payload on {schema}.inbox
    for each row execute function {schema}.inbox_guard_payload();

-- First of an effect's transaction: the payload, if the claim holds. Bounds what
-- a worker that is paused can keep others from: the server ends its session.
create function {schema}.inbox_begin(s bigint, f bigint, statement_ms bigint, idle_ms bigint)
returns bytea language plpgsql as $$
declare
    contents bytea;
begin
    select i.payload into contents from {schema}.inbox i
        where i.seq = s and i.fence = f and i.processing_state = 'processing'
            and i.lease_until > clock_timestamp();
    if not found then
        raise exception 'the claim was given up' using errcode = 'WP011';
    end if;
    perform set_config('walpost.inbox', s || ':' || f, true),
        set_config('idle_in_transaction_session_timeout', idle_ms::text, true);
    if current_setting('statement_timeout') = '0' then
        perform set_config('statement_timeout', statement_ms::text, true);
    end if;
    return contents;
end $$;

-- Last of an effect's transaction. WP011: another fence, or an expired lease.
create function {schema}.inbox_succeed(s bigint, f bigint) returns void language plpgsql as $$
begin
    if coalesce(current_setting('walpost.inbox', true), '') <> s || ':' || f then
        raise exception 'the handler ended the transaction' using errcode = 'WP014';
    end if;
    update {schema}.inbox i set processing_state = 'succeeded', lease_until = null
        where i.seq = s and i.fence = f and i.processing_state = 'processing';
    if not found then
        raise exception 'the claim was given up' using errcode = 'WP011';
    end if;
end $$;

-- What failed may be claimed again after again_ms; never, where that is null.
-- An attempt that was not the event's fault does not count.
create function {schema}.inbox_fail(
    s bigint, f bigint, why text, counts boolean, again_ms bigint
) returns void language plpgsql as $$
begin
    update {schema}.inbox i
        set processing_state = 'failed', reason = why, lease_until = null,
            attempts = i.attempts - case when counts then 0 else 1 end,
            next_attempt_at = clock_timestamp() + again_ms * interval '1 ms'
        where i.seq = s and i.fence = f and i.processing_state = 'processing';
    if not found then
        raise exception 'the claim was given up' using errcode = 'WP011';
    end if;
end $$;

-- What a role needs: reader (everything but payloads, and hashes by which they
-- could be guessed), receiver, processor, operator, pruner. A reader loses
-- whatever else it had on the table.
create function {schema}.inbox_grant(kind text, grantee name) returns void language plpgsql as $$
declare
    seen constant text := 'seq, source, event_id, event_type, related_reference, received_at, '
        'processed_at, processing_state, attempts, fence, lease_until, claimed_by, '
        'next_attempt_at, reason, payload_bytes, has_payload';
    place text;
    inbox text;
    granted text;
begin
    select t.typnamespace::regnamespace::text, t.typrelid::regclass::text
        into place, inbox
        from pg_catalog.pg_type t where t.oid = pg_typeof(null::{schema}.inbox);
    granted := case kind
        when 'reader' then format('select (%s)', seen)
        when 'receiver' then
            'insert (source, event_id, event_type, related_reference, payload), '
            'select (seq, source, event_id, event_type, processing_state, payload_hash)'
        when 'processor' then
            'select, update (processing_state, attempts, fence, lease_until, claimed_by, '
            'next_attempt_at, reason)'
        when 'operator' then
            format('select (%s), update (processing_state, attempts, next_attempt_at, reason)', seen)
        when 'pruner' then format('select (%s), update (payload), delete', seen)
    end;
    if granted is null then
        raise exception 'no kind of role is %; it is reader, receiver, processor, operator or pruner',
            kind;
    end if;
    if kind = 'reader' then
        execute format('revoke all on %s from %I', inbox, grantee);
    end if;
    execute format('grant usage on schema %s to %I', place, grantee);
    execute format('grant %s on %s to %I', granted, inbox, grantee);
    execute format('grant select on %s.inbox_window to %I', place, grantee);
end $$;
