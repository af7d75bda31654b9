//! Several tables, partitioned ones, tables met in the wild, and filters.

use super::{super::case::Converter::JsonWithSchema, Case, Group::Tables};

const TABLES: &str = "table.include.list";

fn case(name: &str) -> Case {
    Case::new(Tables, name)
}

pub(super) fn all() -> Vec<Case> {
    [several(), partitioned(), in_the_wild(), columns()].concat()
}

/// An outbox by that name, with a row each.
fn create(name: &str) -> String {
    format!(
        "create table {name} (id int primary key, aggregatetype text, aggregateid text, \
         type text, payload text)"
    )
}

fn row(table: &str, id: u32) -> String {
    format!("insert into {table} values ({id}, '{{n}}Order', 'a{id}', 't', 'from {id}')")
}

fn several() -> Vec<Case> {
    let two = |name: &str| {
        case(name)
            .setup("create schema sales")
            .setup(&create("sales.outbox"))
            .setup(&create("other"))
    };
    vec![
        two("tables: two of a list")
            .set(TABLES, "public.outbox, sales.outbox")
            .insert([])
            .publishes(1, &row("sales.outbox", 1))
            .silent(&row("other", 2))
            .insert([]),
        two("tables: by a pattern, whatever the case")
            .set(TABLES, ".*\\.OUT.*")
            .publishes(1, &row("sales.outbox", 1))
            .silent(&row("other", 2))
            .insert([]),
        two("tables: a pattern is of the whole name")
            .set(TABLES, "outbox,public.outbo,public.out.*x")
            .silent(&row("sales.outbox", 1))
            .insert([]),
        two("tables: all but some")
            .unset(TABLES)
            // Walpost's own tables are no outboxes, which Debezium cannot know.
            .set("table.exclude.list", "public.other,walpost[.].*")
            .publishes(1, &row("sales.outbox", 1))
            .silent(&row("other", 2))
            .insert([]),
        two("tables: of a schema")
            .unset(TABLES)
            .set("schema.include.list", "sales")
            .silent(&row("other", 2))
            .silent("insert into outbox values (gen_random_uuid(), 'x', 'x', 'x', '{}')")
            .publishes(1, &row("sales.outbox", 1)),
        two("tables: not of a schema")
            .unset(TABLES)
            .set("schema.exclude.list", "sales,walpost")
            .silent(&row("sales.outbox", 1))
            .publishes(1, &row("other", 2))
            .insert([]),
        two("tables: one that is no outbox")
            .setup("create table plain (id int primary key, x text)")
            .set(TABLES, "public.outbox,public.plain")
            .dies("Unable to find payload field payload in event")
            .silent("insert into plain values (1, 'x')")
            .insert([]),
        two("tables: the router is for one alone, by a predicate")
            .setup("create table plain (id int primary key, x text)")
            .set(TABLES, "public.outbox,public.plain")
            .set("transforms.outbox.predicate", "own")
            .set("predicates", "own")
            .set(
                "predicates.own.type",
                "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
            )
            .set("predicates.own.pattern", ".*\\.public\\.outbox")
            .insert([]),
    ]
}

fn partitioned() -> Vec<Case> {
    let parts = |name: &str| {
        case(name)
            .without_outbox()
            .setup(
                "create table outbox (id int, aggregatetype text, aggregateid text, type text, \
                 payload text, primary key (id)) partition by range (id)",
            )
            .setup("create table outbox_low partition of outbox for values from (0) to (100)")
            .setup("create table outbox_high partition of outbox for values from (100) to (200)")
    };
    vec![
        parts("partitions: by their own names")
            .set(TABLES, "public.outbox_.*")
            .publishes(1, &row("outbox", 1))
            .publishes(1, &row("outbox", 150)),
        parts("partitions: through the root")
            .set("publication.name", "root_{n}")
            .setup("create publication root_{n} for table outbox with (publish_via_partition_root)")
            .publishes(1, &row("outbox", 1))
            .publishes(1, &row("outbox", 150))
            .silent("create table outbox_new partition of outbox for values from (200) to (300)")
            .publishes(1, &row("outbox", 250)),
        parts("partitions: a name of the root that is not published")
            .set(TABLES, "public.outbox,public.outbox_high")
            .silent(&row("outbox", 1))
            .publishes(1, &row("outbox", 150)),
        case("tables: inherited")
            .setup("create table base (id int primary key, aggregatetype text, aggregateid text, type text, payload text)")
            .setup("create table child (extra int) inherits (base)")
            .set(TABLES, "public.child,public.outbox")
            .publishes(1, "insert into child values (1, '{n}Order', 'a', 't', 'x', 7)")
            .insert([]),
    ]
}

fn in_the_wild() -> Vec<Case> {
    let quarkus = "create table \"OutboxEvent\" (id uuid not null primary key, \
                   aggregatetype varchar(255) not null, aggregateid varchar(255) not null, \
                   type varchar(255) not null, timestamp timestamp not null, \
                   payload varchar(8000), tracingspancontext varchar(256))";
    let event = |id: u32, payload: &str| {
        format!(
            "insert into \"OutboxEvent\" values ('00000000-0000-4000-8000-{id:012}', '{{n}}Order', \
             'a{id}', 'OrderPlaced', '2020-02-29 12:34:56.123456', {payload}, null)"
        )
    };
    let gone = format!("begin; {}; delete from \"OutboxEvent\"; commit", event(1, "'{\"a\": 1}'"));
    let with =
        |name: &str| case(name).without_outbox().setup(quarkus).set(TABLES, "public.OutboxEvent");
    vec![
        with("quarkus: the table stays empty")
            .router("table.field.event.timestamp", "timestamp")
            .place("type:header:eventType")
            .publishes(1, &gone)
            .publishes(1, &event(2, "null")),
        with("quarkus: expanded")
            .router("table.expand.json.payload", "true")
            .value(JsonWithSchema)
            .publishes(1, &gone)
            .publishes(1, &event(2, "'[]'")),
        case("tables: camel case")
            .without_outbox()
            .setup(
                "create table \"outboxEvents\" (\"eventId\" bigserial primary key, \
                 \"aggregateType\" text, \"aggregateId\" bigint, \"eventType\" text, body jsonb, \
                 \"createdAt\" timestamp(3))",
            )
            .set(TABLES, "public.outboxEvents")
            .router("table.field.event.id", "eventId")
            .router("table.field.event.key", "aggregateId")
            .router("table.field.event.payload", "body")
            .router("table.field.event.timestamp", "createdAt")
            .router("route.by.field", "aggregateType")
            .place("eventType:header:type")
            .publishes(
                1,
                "insert into \"outboxEvents\" (\"aggregateType\", \"aggregateId\", \"eventType\", \
                 body, \"createdAt\") values ('{n}Order', 7, 'Placed', '{\"b\":2}', \
                 '2020-02-29 12:34:56.789')",
            ),
        case("tables: without a primary key")
            .column("id", "uuid")
            .insert([])
            .insert([("id", "null")])
            .insert([]),
        case("tables: a generated column")
            .column("doubled", "int generated always as (2 * length(type)) stored")
            .place("doubled:header")
            .router("table.field.additional.missing", "ignore")
            .insert([]),
        case("tables: an identity")
            .column("seq", "bigint generated always as identity")
            .place("seq:header,seq:envelope")
            .value(JsonWithSchema)
            .insert([])
            .insert([]),
        case("tables: an unlogged one beside it")
            .setup("create unlogged table quick (id int)")
            .silent("insert into quick values (1)")
            .insert([]),
    ]
}

fn columns() -> Vec<Case> {
    vec![
        case("columns: all but one")
            .column("secret", "text")
            .set("column.exclude.list", "public.outbox.secret")
            .insert([("secret", "'x'")]),
        case("columns: all but one that is placed")
            .column("secret", "text")
            .place("secret:header,type:header")
            .router("table.field.additional.missing", "ignore")
            .set("column.exclude.list", ".*\\.SECRET")
            .insert([("secret", "'x'")]),
        case("columns: all but the payload")
            .set("column.exclude.list", "public.outbox.payload")
            .dies("payload")
            .insert([]),
        case("columns: some")
            .column("secret", "text")
            .place("secret:header")
            .router("table.field.additional.missing", "ignore")
            .set("column.include.list", "public.outbox.(id|aggregate.*|payload)")
            .insert([("secret", "'x'")]),
    ]
}
