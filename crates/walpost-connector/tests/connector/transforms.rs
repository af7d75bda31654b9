use walpost_connector::{Action, HeaderOperation, Test, Verdict};
use walpost_encode::connect::{EmptyArray, NameAdjustment, NullField};

use super::{judged, refused, row, settings, text, verdict};

const ROUTER: &str = "io.debezium.transforms.outbox.EventRouter";
const REGEX_ROUTER: &str = "org.apache.kafka.connect.transforms.RegexRouter";

#[test]
fn options_of_the_router_are_the_routers() {
    let connector = settings(&[
        ("transforms.outbox.table.op.invalid.behavior", "FATAL"),
        ("transforms.outbox.table.field.additional.missing", "ignore"),
        ("transforms.outbox.table.field.event.id", " event_id "),
        ("transforms.outbox.table.expand.json.payload", "true"),
        ("transforms.outbox.table.json.payload.null.behavior", "optional_bytes"),
        ("transforms.outbox.table.json.payload.empty.array.behavior", "optional_string"),
        ("transforms.outbox.field.name.adjustment.mode", "avro_unicode"),
        ("transforms.outbox.tracing.operation.name", "relay"),
        ("transforms.outbox.tracing.with.context.field.only", "false"),
        ("value.converter", super::JSON),
    ]);
    let router = &connector.transforms.router;
    assert_eq!(text(&connector, "router.invalid_operation"), "fatal");
    assert_eq!(text(&connector, "router.additional_missing"), "ignore");
    assert_eq!(text(&connector, "router.event_id"), "event_id");
    let expansion = router.expansion.unwrap();
    assert_eq!(expansion.null, NullField::OptionalBytes);
    assert_eq!(expansion.empty_array, EmptyArray::OptionalString);
    assert_eq!(expansion.names, NameAdjustment::AvroUnicode);
    assert_eq!((&*router.tracing.operation, router.tracing.only_with_context), ("relay", false));
}

#[test]
fn what_the_router_cannot_use_is_refused_at_its_option() {
    for (option, value, says) in [
        ("table.fields.additional.placement", "type:headr", "expected column:placement[:alias]"),
        ("table.fields.additional.placement", ":header", "expected column:placement[:alias]"),
        ("table.fields.additional.placement", "", "is empty"),
        ("table.fields.additional.placement", "a:envelope:payload", "are named payload"),
        ("table.fields.additional.placement", "a:envelope:x,x:envelope", "are named x"),
        ("route.topic.regex", "(?=x).*", "without look-around"),
        ("route.topic.regex", "a*+", "Java reads differently"),
        ("route.topic.replacement", "${nope}", "no group named"),
        ("table.field.event.key", "", "is empty"),
        ("table.field.payload", "x", "write table.field.event.payload"),
        ("debezium.op.invalid.behavior", "x", "write table.op.invalid.behavior"),
    ] {
        let name = format!("transforms.outbox.{option}");
        refused(&[(&name, value)], &name, says);
    }
    refused(
        &[
            ("transforms.outbox.table.field.additional.missing", "ignore"),
            ("transforms.outbox.table.fields.additional.error.on.missing", "true"),
        ],
        "transforms.outbox.table.fields.additional.error.on.missing",
        "says otherwise",
    );
}

#[test]
fn where_debezium_fails_or_loses_something_it_is_told() {
    let expand = ("transforms.outbox.table.expand.json.payload", "true");
    let time = "transforms.outbox.table.field.event.timestamp";
    for (more, expected, says) in [
        (
            vec![("transforms.outbox.field.name.adjustment.mode", "avro"), expand],
            Verdict::Honoured,
            "is parked: Debezium writes null",
        ),
        (
            vec![("transforms.outbox.table.fields.additional.error.on.missing", "true")],
            Verdict::Mapped,
            "since then it takes it for nothing",
        ),
        (
            vec![(time, "at"), ("time.precision.mode", "isostring")],
            Verdict::Honoured,
            "Debezium fails on it",
        ),
        (
            vec![
                ("value.converter.replace.null.with.default", "false"),
                ("value.converter", super::JSON),
            ],
            Verdict::Honoured,
            "default all the same",
        ),
        (
            vec![("transforms.t.type", DECODE), ("transforms", "t,outbox")],
            Verdict::Honoured,
            "what Java makes of it",
        ),
    ] {
        let (found, note) = verdict(&more);
        assert_eq!(found, expected, "{note}");
        assert!(note.contains(says), "{note}");
    }
    let (_, note) = verdict(&[(time, "at")]);
    assert_eq!(note, "");
}

#[test]
fn options_without_effect_are_told() {
    for (option, value, says) in [
        ("table.field.event.schema.version", "version", "no placement makes an envelope"),
        ("table.json.payload.null.behavior", "ignore", "the payload is not expanded"),
        ("field.name.adjustment.mode", "avro", "the payload is not expanded"),
        ("table.field.event.type", "type", "Debezium reads it nowhere"),
        ("negate", "true", "no predicate"),
    ] {
        let name = format!("transforms.outbox.{option}");
        let (found, note) = verdict(&[(&name, value)]);
        assert_eq!(found, Verdict::Ignored, "{name}");
        assert!(note.contains(says), "{name}: {note}");
    }
    let (found, note) = verdict(&[("transforms.other.type", "x")]);
    assert_eq!(found, Verdict::Ignored);
    assert!(note.contains("transforms does not name it"), "{note}");
}

const FILTER: &str = "org.apache.kafka.connect.transforms.Filter";
const FROM_VALUE: &str = "org.apache.kafka.connect.transforms.HeaderFrom$Value";
const FROM_KEY: &str = "org.apache.kafka.connect.transforms.HeaderFrom$Key";
const DECODE: &str =
    "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent";

/// A chain with the class of its transform `t`, the property that is refused,
/// and what is said of it.
const CHAINS: [(&str, &str, &str, &str); 12] = [
    ("", "", "transforms", "no outbox event router"),
    ("outbox,outbox", "", "transforms", "outbox is there twice"),
    ("outbox,t", "", "transforms.t.type", "it is empty"),
    ("outbox,t", ROUTER, "transforms.t.type", "there is a router before it"),
    ("outbox,t", "a.Flatten$Value", "transforms.t.type", "write one of"),
    ("t,outbox", "io.debezium.transforms.Filter", "transforms.t.type", "runs a script"),
    ("outbox,t", DECODE, "transforms.t.type", "before the router's"),
    ("outbox,t", FILTER, "transforms.t.predicate", "every record would be dropped"),
    ("t,outbox", FROM_VALUE, "transforms.t.type", "behind the router's"),
    ("outbox,t", FROM_VALUE, "transforms.t.type", "bare payload"),
    ("outbox,t", FROM_KEY, "transforms.t.type", "one value and has no fields"),
    ("outbox,t", REGEX_ROUTER, "transforms.t.replacement", "it is missing"),
];

/// Options of the transform `t`, as far as its class has them.
const OPTIONS: [(&str, &str); 4] = [
    ("transforms.t.fields", "a"),
    ("transforms.t.headers", "b"),
    ("transforms.t.operation", "copy"),
    ("transforms.t.regex", "a"),
];

fn chain<'a>(order: &'a str, class: &'a str) -> Vec<(&'a str, &'a str)> {
    let options = OPTIONS.into_iter().filter(|(name, _)| match class {
        FROM_VALUE | FROM_KEY => !name.ends_with("regex"),
        REGEX_ROUTER => name.ends_with("regex"),
        _ => false,
    });
    [("transforms", order), ("transforms.t.type", class)].into_iter().chain(options).collect()
}

#[test]
fn a_chain_that_does_not_hold_is_refused() {
    for (order, class, property, says) in CHAINS {
        refused(&chain(order, class), property, says);
    }
    let unknown = [chain("outbox,t", FILTER), vec![("transforms.t.predicate", "p")]].concat();
    refused(&unknown, "transforms.t.predicate", "predicates does not name it");
    let group =
        [chain("outbox,t", REGEX_ROUTER), vec![("transforms.t.replacement", "$1")]].concat();
    refused(&group, "transforms.t.replacement", "no group 1");
}

#[test]
fn headers_are_made_of_the_fields_of_an_envelope() {
    let envelope = ("transforms.outbox.table.fields.additional.placement", "a:envelope");
    let from = [chain("outbox,t", FROM_VALUE), vec![envelope]].concat();
    let connector = settings(&from);
    let Action::HeaderFromValue { fields, operation, .. } = &connector.transforms.after[0].action
    else {
        panic!("headers of fields")
    };
    assert_eq!((fields[0].0.as_str(), fields[0].1.as_str()), ("a", "b"));
    assert_eq!(*operation, HeaderOperation::Copy);
    let more = [from, vec![("transforms.t.headers", "a,b")]].concat();
    refused(&more, "transforms.t.headers", "write as many");
}

#[test]
fn options_of_an_alias_are_none_of_one_that_begins_alike() {
    let connector = settings(&[
        ("transforms", "outbox,outbox.b"),
        ("transforms.outbox.b.type", REGEX_ROUTER),
        ("transforms.outbox.b.regex", "x"),
        ("transforms.outbox.b.replacement", "y"),
    ]);
    assert_eq!(connector.transforms.after[0].alias, "outbox.b");
}

#[test]
fn a_router_under_a_condition_says_what_becomes_of_the_rest() {
    let more = [
        ("transforms.outbox.predicate", "isOutbox"),
        ("transforms.outbox.negate", "TRUE"),
        ("predicates", "isOutbox"),
        (
            "predicates.isOutbox.type",
            "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
        ),
    ];
    let judgement = judged(&more);
    let row = row(&judgement, "transforms.outbox.predicate");
    assert!(row.note.contains("published by nobody"), "{row}");
    let condition = judgement.connector.unwrap().transforms.router.condition.unwrap();
    assert!(condition.negate && condition.test == Test::IsTombstone);
}

#[test]
fn what_a_message_decodes_to_is_written_as_text_alone() {
    let decode = [("transforms", "t,outbox"), ("transforms.t.type", DECODE)];
    assert!(settings(&decode).transforms.decodes_messages());
    let avro = "io.confluent.connect.avro.AvroConverter";
    let registry = ("value.converter.schema.registry.url", "http://registry");
    for (more, property) in [
        (vec![("value.converter", super::JSON)], "value.converter"),
        (vec![("key.converter", super::JSON)], "key.converter"),
        (vec![("header.converter", super::JSON)], "header.converter"),
        (vec![("value.converter", avro), registry], "value.converter"),
    ] {
        refused(&[&decode[..], &more].concat(), property, "StringConverter");
    }
    let envelope = ("transforms.outbox.table.fields.additional.placement", "a:envelope");
    refused(&[decode[0], decode[1], envelope], "transforms.outbox.type", "as headers");
    let nulls = ("transforms.t.fields.null.include", "true");
    refused(&[decode[0], decode[1], nulls], nulls.0, "write false");
}
