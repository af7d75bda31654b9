-- For webhooks whose path and body stand in one column, as
-- {"path": "/plan/7/subscribe", "body": {"userId": 7}}: each gets a column of its
-- own. A trigger fills them, as generated columns are not in the WAL's stream
-- (before PostgreSQL 18 none can be); the application inserts what it did before.
ALTER TABLE "outbox" ADD COLUMN "path" TEXT, ADD COLUMN "body" JSONB;

CREATE FUNCTION outbox_request() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW."path" := NEW."payload" ->> 'path';
  NEW."body" := NEW."payload" -> 'body';
  RETURN NEW;
END $$;

CREATE TRIGGER outbox_request BEFORE INSERT ON "outbox"
  FOR EACH ROW EXECUTE FUNCTION outbox_request();

-- For polling alone: what has been handed on and has not arrived.
ALTER TYPE "outbox_message_status" ADD VALUE 'sending';

-- Behind `walpost migrate --set webhook`.
SELECT walpost.webhook_mark('"outbox"', 'status', pending => 'pending',
  delivered => 'sent', failed => 'failed',
  attempts_column => 'attempts', last_attempt_at_column => 'updatedAt');
