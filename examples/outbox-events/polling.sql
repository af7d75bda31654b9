-- Keep a claim from reading what is published; `walpost check` prints them.
create index concurrently "outbox_events_unpublished" on "public"."outbox_events" ("created_at", "id") where "status" in ('NEW', 'FAILED');
create index concurrently "outbox_events_unpublished_aggregate" on "public"."outbox_events" ("aggregate_type", "aggregate_id", "created_at", "id") where "status" in ('NEW', 'FAILED');
