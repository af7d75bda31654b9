CREATE TABLE outbox_events (
  id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
  aggregate_type TEXT NOT NULL,
  aggregate_id TEXT NOT NULL,
  event_type TEXT NOT NULL,
  payload JSONB NOT NULL,
  headers JSONB,
  -- The clock and not the start of the transaction: it is the order of an
  -- aggregate's events.
  created_at TIMESTAMPTZ NOT NULL DEFAULT CLOCK_TIMESTAMP(),
  published_at TIMESTAMPTZ,
  status TEXT NOT NULL DEFAULT 'NEW' CHECK (status IN ('NEW', 'PUBLISHED', 'FAILED')),
  attempts INT NOT NULL DEFAULT 0,
  next_attempt_at TIMESTAMPTZ
);

CREATE INDEX ON outbox_events (status, next_attempt_at, created_at);
CREATE INDEX ON outbox_events (aggregate_type, aggregate_id, created_at);
