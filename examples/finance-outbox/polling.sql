-- Keeps a claim from reading what is delivered; `walpost check` prints it.
create index concurrently "finance_outbox_unpublished" on "public"."finance_outbox" ("created_at", "id") where "delivery_status" in ('pending', 'failed');
