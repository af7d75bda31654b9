-- Keep a claim from reading what is processed; `walpost check` prints them.
create index concurrently "outbox_events_unpublished" on "public"."outbox_events" ("id") where "status" in ('pending', 'failed');
create index concurrently "outbox_events_unpublished_aggregate" on "public"."outbox_events" ("order_id", "id") where "status" in ('pending', 'failed');
