CREATE TYPE "outbox_message_status" AS ENUM (
  'pending',
  'failed',
  'sent'
);

CREATE TABLE "outbox" (
  "id" UUID PRIMARY KEY DEFAULT gen_random_uuid(),
  "status" "outbox_message_status" NOT NULL DEFAULT 'pending',
  "attempts" SMALLINT NOT NULL DEFAULT 0,
  "retryLimit" SMALLINT NOT NULL DEFAULT 0,
  "retryWaitPeriodMs" INT NOT NULL DEFAULT 1000,
  "createdAt" TIMESTAMP NOT NULL DEFAULT CLOCK_TIMESTAMP(),
  "updatedAt" TIMESTAMP,
  "destination" VARCHAR(255) NOT NULL,
  "payload" JSONB
);

CREATE INDEX outbox_created_at_pending_idx
  ON "outbox" ("status", "createdAt") WHERE "status" = 'pending';
