//! Transforms behind the router, and predicates.

use super::{
    super::case::Converter::{Json, JsonWithSchema},
    Case,
    Group::Transforms,
};

const PACKAGE: &str = "org.apache.kafka.connect.transforms.";

/// With one more transform `next` behind the router, by its options.
fn next(name: &str, class: &str, options: &[(&str, &str)]) -> Case {
    let case = Case::new(Transforms, name)
        .set("transforms", "outbox,next")
        .set("transforms.next.type", &format!("{PACKAGE}{class}"));
    options
        .iter()
        .fold(case, |case, (option, value)| case.set(&format!("transforms.next.{option}"), value))
}

/// That transform where a predicate holds.
fn predicate(case: Case, class: &str, options: &[(&str, &str)], negate: bool) -> Case {
    let case = case
        .set("predicates", "when")
        .set("predicates.when.type", &format!("{PACKAGE}predicates.{class}"))
        .set("transforms.next.predicate", "when");
    let case = if negate { case.set("transforms.next.negate", "true") } else { case };
    options
        .iter()
        .fold(case, |case, (name, value)| case.set(&format!("predicates.when.{name}"), value))
}

pub(super) fn all() -> Vec<Case> {
    [topics(), headers(), filters(), further()].concat()
}

fn topics() -> Vec<Case> {
    let route = |name: &str, regex: &str, replacement: &str| {
        next(name, "RegexRouter", &[("regex", regex), ("replacement", replacement)])
            .insert([])
            .insert([("aggregatetype", "'{n}User'")])
    };
    vec![
        route("RegexRouter: renames", "outbox\\.event\\.(.*)", "prod.$1.v2"),
        route("RegexRouter: no match", "event\\.(.*)", "prod.$1"),
        route("RegexRouter: a named group", "outbox.event.(?<rest>.*)", "${rest}"),
    ]
}

fn headers() -> Vec<Case> {
    let insert = |name: &str, value: &str| {
        next(name, "InsertHeader", &[("header", "made"), ("value.literal", value)]).insert([])
    };
    let from = |name: &str, operation: &str| {
        next(
            name,
            "HeaderFrom$Value",
            &[("fields", "type,id"), ("headers", "t,i"), ("operation", operation)],
        )
        .place("type:envelope,id:envelope")
        .value(JsonWithSchema)
        .insert([])
    };
    vec![
        insert("InsertHeader: text", "by hand"),
        insert("InsertHeader: a number", "42"),
        insert("InsertHeader: a flag", "true"),
        insert("InsertHeader: a date", "2020-02-29T12:34:56.789Z"),
        insert("InsertHeader: a list", "[1, 2, 3]"),
        insert("InsertHeader: a map", r#"{"a": "b"}"#),
        insert("InsertHeader: a fraction", "1.50"),
        insert("InsertHeader: null", "null"),
        insert("InsertHeader: with its schema", "42").header(JsonWithSchema),
        next(
            "DropHeaders: those of Debezium",
            "DropHeaders",
            &[(
                "headers",
                "__debezium.context.runId,__debezium.context.taskId,nothing,\
                 __debezium.context.connectorName,__debezium.context.connectorLogicalName",
            )],
        )
        .insert([]),
        next("DropHeaders: the id", "DropHeaders", &[("headers", "id")]).insert([]),
        from("HeaderFrom: copies", "copy"),
        from("HeaderFrom: moves", "move"),
    ]
}

fn filters() -> Vec<Case> {
    let filter = |name: &str| next(name, "Filter", &[]);
    let rows = |case: Case, orders: usize, users: usize| {
        case.publishes(orders, &row(1, "Order", "'x'"))
            .publishes(users, &row(2, "User", "'x'"))
            .publishes(orders, &row(3, "Order", "null"))
    };
    let tombstones = |case: Case| case.router("route.tombstone.on.empty.payload", "true");
    vec![
        rows(
            predicate(
                filter("Filter: by topic"),
                "TopicNameMatches",
                &[("pattern", ".*User")],
                false,
            ),
            1,
            0,
        ),
        rows(
            predicate(
                filter("Filter: all but a topic"),
                "TopicNameMatches",
                &[("pattern", ".*Order")],
                true,
            ),
            1,
            0,
        ),
        rows(
            predicate(filter("Filter: by a header"), "HasHeaderKey", &[("name", "nothing")], false),
            1,
            1,
        ),
        predicate(filter("Filter: without a header"), "HasHeaderKey", &[("name", "mark")], true)
            .column("mark", "text")
            .place("mark:header")
            .insert([("mark", "null")])
            .insert([]),
        tombstones(predicate(filter("Filter: tombstones"), "RecordIsTombstone", &[], false))
            .silent(&row(1, "Order", "null"))
            .publishes(1, &row(2, "Order", "'\"x\"'").replace("'x'", "'\"x\"'")),
        predicate(
            next(
                "RegexRouter: by a predicate",
                "RegexRouter",
                &[("regex", "(.*)"), ("replacement", "$1.users")],
            ),
            "TopicNameMatches",
            &[("pattern", ".*User")],
            false,
        )
        .insert([])
        .insert([("aggregatetype", "'{n}User'")]),
        Case::new(Transforms, "Filter: before the router")
            .set("transforms", "next,outbox")
            .set("transforms.next.type", &format!("{PACKAGE}Filter"))
            .set("transforms.next.predicate", "when")
            .set("predicates", "when")
            .set("predicates.when.type", &format!("{PACKAGE}predicates.TopicNameMatches"))
            .set("predicates.when.pattern", ".*\\.nothing")
            .insert([]),
        Case::new(Transforms, "predicate: one that there is not")
            .set("transforms.outbox.predicate", "nothing")
            .refused("predicate"),
    ]
}

fn row(id: u32, kind: &str, payload: &str) -> String {
    let payload = payload.replace("'x'", "'\"x\"'");
    format!(
        "insert into outbox values ('00000000-0000-4000-8000-{id:012}', '{{n}}{kind}', 'a1', 't', \
         {payload})"
    )
}

fn further() -> Vec<Case> {
    vec![
        next(
            "InsertField: a constant",
            "InsertField$Value",
            &[("static.field", "source"), ("static.value", "db")],
        )
        .place("type:envelope")
        .value(Json)
        .insert([]),
        next(
            "InsertField: topic, partition and a required constant",
            "InsertField$Value",
            &[
                ("topic.field", "topic"),
                ("partition.field", "shard?"),
                ("static.field", "source!"),
                ("static.value", "db"),
            ],
        )
        .column("shard", "int")
        .place("type:envelope,shard:partition")
        .value(JsonWithSchema)
        .insert([("shard", "0")]),
        Case::new(Transforms, "two routers of topics, in their order")
            .set("transforms", "outbox,one,two")
            .set("transforms.one.type", &format!("{PACKAGE}RegexRouter"))
            .set("transforms.one.regex", "outbox(.*)")
            .set("transforms.one.replacement", "a$1")
            .set("transforms.two.type", &format!("{PACKAGE}RegexRouter"))
            .set("transforms.two.regex", "a(.*)")
            .set("transforms.two.replacement", "b$1")
            .insert([]),
        Case::new(Transforms, "a transform that there is not")
            .set("transforms", "outbox,next")
            .set("transforms.next.type", "com.example.NoTransform")
            .refused("com.example.NoTransform"),
    ]
}
