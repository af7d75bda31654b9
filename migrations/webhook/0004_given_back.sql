-- A claim that nothing was sent under is given back and does not count.
create or replace function {schema}.webhook_guard() returns trigger language plpgsql as $$
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
    -- Claimed and not sent: that claim does not count, and leaves no trace but its fence.
    when step = 'sending to pending'
        and new.fence = old.fence and new.attempts = old.attempts - 1
        and new.outcome is not distinct from old.outcome
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
