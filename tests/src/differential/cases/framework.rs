//! What Kafka Connect and the connector do around the router.

use super::{
    super::case::Converter::{Bytes, Json, JsonWithSchema},
    Case,
    Group::Framework,
};

fn case(name: &str) -> Case {
    Case::new(Framework, name)
}

pub(super) fn all() -> Vec<Case> {
    [topics(), heartbeats(), errors(), others(), publications()].concat()
}

fn topics() -> Vec<Case> {
    let created = |name: &str| {
        case(name)
            .set("topic.creation.default.replication.factor", "1")
            .set("topic.creation.default.partitions", "5")
    };
    let keyed = |case: Case| {
        case.insert([])
            .insert([("aggregateid", "'b'")])
            .insert([("aggregateid", "'c'"), ("aggregatetype", "'{n}User'")])
    };
    vec![
        keyed(created("topics: partitions")),
        keyed(created("topics: settings"))
            .set("topic.creation.default.cleanup.policy", "compact,delete")
            .set("topic.creation.default.retention.ms", "86400000")
            .set("topic.creation.default.compression.type", "lz4"),
        keyed(created("topics: groups"))
            .set("topic.creation.groups", "users,rest")
            .set("topic.creation.users.include", ".*User")
            .set("topic.creation.users.partitions", "2")
            .set("topic.creation.users.cleanup.policy", "compact")
            .set("topic.creation.rest.include", ".*")
            .set("topic.creation.rest.exclude", ".*Order")
            .set("topic.creation.rest.partitions", "7"),
        case("topics: no factor of replication")
            .set("topic.creation.default.partitions", "5")
            .refused("topic.creation.default.replication.factor"),
    ]
}

fn heartbeats() -> Vec<Case> {
    let beating = |name: &str| case(name).set("heartbeat.interval.ms", "200").insert([]).and(1);
    vec![
        beating("heartbeats: as text"),
        beating("heartbeats: as JSON").key(Json).value(Json),
        beating("heartbeats: with schemas").key(JsonWithSchema).value(JsonWithSchema),
        beating("heartbeats: of another prefix").set("topic.heartbeat.prefix", "beats"),
        beating("heartbeats: with a query")
            .setup("create table beat (at timestamptz)")
            .set("heartbeat.action.query", "insert into beat values (now())"),
        case("heartbeats: that bytes cannot hold")
            .column("payload", "bytea")
            .value(Bytes)
            .set("heartbeat.interval.ms", "200")
            .dies("Exception"),
    ]
}

fn errors() -> Vec<Case> {
    let tolerant = |name: &str| case(name).set("errors.tolerance", "all").insert([]);
    vec![
        tolerant("tolerance: a row without a route is dropped")
            .column("aggregatetype", "text")
            .silent("insert into outbox values (gen_random_uuid(), null, 'a', 't', '{}')")
            .insert([]),
        tolerant("tolerance: an update is dropped, fatal or not")
            .router("table.op.invalid.behavior", "fatal")
            .silent("update outbox set type = 'x'")
            .insert([]),
        tolerant("tolerance: what the converter does not take is dropped")
            .column("payload", "text")
            .router("table.expand.json.payload", "true")
            .value(Json)
            .silent("insert into outbox values (gen_random_uuid(), '{n}Order', 'a', 't', '[1]')")
            .insert([]),
        case("tolerance: an unknown one")
            .set("errors.tolerance", "some")
            .refused("errors.tolerance"),
    ]
}

fn others() -> Vec<Case> {
    vec![
        case("headers: without those of the connector")
            .set("extended.headers.enabled", "false")
            .place("type:header")
            .insert([]),
        case("tasks: more than one").set("tasks.max", "4").insert([]),
        case("transactions: with their boundaries")
            .set("provide.transaction.metadata", "true")
            .key(Json)
            .value(Json)
            .refused_by_walpost("begin and end of every transaction")
            .insert([])
            .and(2),
        case("keys: of the change, which the router does not see")
            .set("message.key.columns", "public.outbox:type")
            .insert([]),
        case("topics: a delimiter of the change's")
            .set("topic.delimiter", "_")
            .set("topic.naming.strategy", "io.debezium.schema.SchemaTopicNamingStrategy")
            .place("type:envelope")
            .value(JsonWithSchema)
            .insert([]),
        case("a topic prefix with a dash")
            .set("topic.prefix", "{n}-x_Y")
            .place("type:envelope")
            .value(JsonWithSchema)
            .insert([]),
        case("a property that nobody knows")
            .set("no.such.property", "x")
            .refused_by_walpost("there is no such property")
            .insert([]),
        case("an option of the router that nobody knows")
            .router("no.such.option", "x")
            .refused_by_walpost("there is no such property")
            .insert([]),
        case("no topic prefix").unset("topic.prefix").refused("topic.prefix"),
        case("a topic prefix that is none").set("topic.prefix", "a b").refused("topic.prefix"),
        case("a producer of its own settings")
            .set("producer.override.linger.ms", "20")
            .set("producer.override.compression.type", "gzip")
            .insert([])
            .insert([]),
        case("names of schemas for Avro")
            .set("schema.name.adjustment.mode", "avro")
            .set("topic.prefix", "{n}-x")
            .place("type:envelope")
            .value(JsonWithSchema)
            .insert([]),
        case("tracing: a column of context, and nobody traces")
            .column("tracingspancontext", "varchar(256)")
            .insert([("tracingspancontext", "'traceparent=00-1-2-01'")]),
        case("toasted values come whole")
            .column("payload", "text")
            .set("unavailable.value.placeholder", "gone")
            .insert([(
                "payload",
                "(select string_agg(md5(n::text), '') from generate_series(1, 500) n)",
            )]),
    ]
}

fn publications() -> Vec<Case> {
    let mode = |name: &str, mode: &str| {
        case(name)
            .set("publication.autocreate.mode", mode)
            .set("publication.name", "own_{n}")
            .insert([])
            .insert([])
    };
    vec![
        mode("publication: filtered", "filtered"),
        mode("publication: all tables", "all_tables"),
        case("publication: none where it must be")
            .set("publication.name", "nothing_{n}")
            .refused("Publication autocreation is disabled"),
    ]
}
