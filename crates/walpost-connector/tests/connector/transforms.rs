use walpost_connector::{Action, Test, Unknown, Verdict, judge};
use walpost_encode::connect::{EmptyArray, HeaderOperation, Inserted, NameAdjustment, NullField};

use super::{judged, refused, row, settings, text, verdict, with};

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
}

#[test]
fn spans_are_nobodys_business_here() {
    for name in ["span.context.field", "operation.name", "with.context.field.only"] {
        let name = format!("transforms.outbox.tracing.{name}");
        let value = if name.ends_with("only") { "false" } else { "relay" };
        let (found, note) = verdict(&[(&name, value)]);
        assert_eq!(found, Verdict::Ignored, "{note}");
        assert!(note.contains("makes no spans"), "{note}");
    }
}

#[test]
fn a_fatal_update_is_an_error_in_the_log_where_errors_are_tolerated() {
    const BEHAVIOUR: &str = "transforms.outbox.table.op.invalid.behavior";
    let of = |tolerance: &str, behaviour: &str| {
        let more = [("errors.tolerance", tolerance), (BEHAVIOUR, behaviour)];
        text(&settings(&more), "router.invalid_operation").to_owned()
    };
    assert_eq!(of("none", "fatal"), "fatal");
    assert_eq!(of("ALL", "fatal"), "error");
    assert_eq!(of("all", "warn"), "warn");
}

#[test]
fn what_the_router_cannot_use_is_refused_at_its_option() {
    for (option, value, says) in [
        ("table.fields.additional.placement", "type:headr", "expected column:placement[:alias]"),
        ("table.fields.additional.placement", ":header", "expected column:placement[:alias]"),
        ("table.fields.additional.placement", "", "is empty"),
        ("table.fields.additional.placement", "a:envelope:payload", "are named payload"),
        ("table.fields.additional.placement", "a:envelope:x,x:envelope", "are named x"),
        ("route.topic.regex", "(?=x)*", "it does not compile"),
        ("route.topic.regex", "a**", "a quantifier after a quantifier at byte 2"),
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

#[test]
fn an_option_of_a_misspelt_alias_is_refused_with_the_nearest_one_or_told() {
    let name = "transforms.outbx.route.by.field";
    let meant = "transforms does not name it, and Kafka Connect reads it only then; did you mean \
                 transforms.outbox.route.by.field?";
    refused(&[(name, "kind")], name, meant);
    let warned = judge(&with(&[(name, "kind")]), None, Unknown::Warn);
    assert!(warned.connector.is_some());
    assert!(warned.verdicts.warnings().any(|row| row.property == name && row.note == meant));
    let predicates = [
        ("predicates", "own"),
        ("predicates.own.type", "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone"),
        ("predicates.onw.name", "x"),
    ];
    refused(&predicates, "predicates.onw.name", "did you mean predicates.own.name?");
    // Whole, and only not in use.
    let other = [("transforms.outbox2.type", "x"), ("transforms.outbox2.regex", "x")];
    let (verdict, note) = verdict(&other);
    assert!(verdict == Verdict::Ignored && !note.contains("did you mean"), "{note}");
}

const FILTER: &str = "org.apache.kafka.connect.transforms.Filter";
const FROM_VALUE: &str = "org.apache.kafka.connect.transforms.HeaderFrom$Value";
const FROM_KEY: &str = "org.apache.kafka.connect.transforms.HeaderFrom$Key";
const DECODE: &str =
    "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent";

/// A chain with the class of its transform `t`, the property that is refused,
/// and what is said of it.
const CHAINS: [(&str, &str, &str, &str); 13] = [
    ("", "", "transforms", "no outbox event router"),
    ("t", "io.debezium.transforms.ExtractNewRecordState", "transforms", "no outbox event router"),
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
fn who_drops_the_id_is_told_what_it_is_for() {
    let drop = |order, headers| {
        let class = "org.apache.kafka.connect.transforms.DropHeaders";
        let chain = [("transforms", order), ("transforms.t.type", class)];
        let chain = [&chain[..], &[("transforms.t.headers", headers)]].concat();
        row(&judged(&chain), "transforms.t.headers").note
    };
    assert!(drop("outbox,t", "a, id").contains("publishes that again"));
    for (order, headers) in [("outbox,t", "a"), ("t,outbox", "id")] {
        let note = drop(order, headers);
        assert!(!note.contains("publishes"), "{note}");
    }
}

#[test]
fn a_chain_that_does_not_hold_is_refused() {
    for (order, class, property, says) in CHAINS {
        refused(&chain(order, class), property, says);
    }
    let id = [
        ("transforms.t.type", "org.apache.kafka.connect.transforms.InsertHeader"),
        ("transforms.t.header", "id"),
        ("transforms.t.value.literal", "7"),
    ];
    let before = [&[("transforms", "t,outbox")][..], &id].concat();
    refused(&before, "transforms.t.type", "by which every event is known");
    settings(&[&[("transforms", "outbox,t")][..], &id].concat());
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

const FIELD_OF_VALUE: &str = "org.apache.kafka.connect.transforms.InsertField$Value";

#[test]
fn fields_are_added_to_an_envelope() {
    let envelope = ("transforms.outbox.table.fields.additional.placement", "a:envelope");
    let class = ("transforms.t.type", FIELD_OF_VALUE);
    let chain = [("transforms", "outbox,t"), class, envelope];
    let all = [
        ("transforms.t.topic.field", "topic"),
        ("transforms.t.partition.field", "shard?"),
        ("transforms.t.static.field", "source!"),
        ("transforms.t.static.value", "db"),
    ];
    let connector = settings(&[&chain[..], &all].concat());
    let Action::InsertFields { fields, replace_null_with_default: true } =
        &connector.transforms.after[0].action
    else {
        panic!("fields that are added")
    };
    let shown: Vec<(&str, bool, &Inserted)> =
        fields.iter().map(|field| (&*field.name, field.optional, &field.of)).collect();
    let source = Inserted::Constant("db".into());
    let expected = [
        ("topic", true, &Inserted::Topic),
        ("shard", true, &Inserted::Partition),
        ("source", false, &source),
    ];
    assert_eq!(shown, expected);
    for (more, property, says) in [
        (vec![], "transforms.t.static.field", "nothing would be added"),
        (vec![all[2]], "transforms.t.static.value", "it is missing"),
        (vec![("transforms.t.timestamp.field", "at")], "transforms.t.timestamp.field", "place"),
        (vec![("transforms.t.offset.field", "at")], "transforms.t.offset.field", "remove it"),
    ] {
        refused(&[&chain[..], &more].concat(), property, says);
    }
    refused(&[chain[0], class, all[0]], class.0, "bare payload");
    refused(&[("transforms", "t,outbox"), class, envelope, all[0]], class.0, "behind the router's");
    let of_key = ("transforms.t.type", "org.apache.kafka.connect.transforms.InsertField$Key");
    refused(&[chain[0], of_key, envelope, all[0]], class.0, "one value and has no fields");
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
fn what_a_message_decodes_to_may_be_written_by_any_converter() {
    let decode = [("transforms", "t,outbox"), ("transforms.t.type", DECODE)];
    assert_eq!(settings(&decode).transforms.keeps_null_members(), Some(false));
    assert_eq!(settings(&[]).transforms.keeps_null_members(), None);
    let nulls = ("transforms.t.fields.null.include", "true");
    let envelope = ("transforms.outbox.table.fields.additional.placement", "a:envelope");
    let expanded = ("transforms.outbox.table.expand.json.payload", "true");
    let json = |name| (name, super::JSON);
    for more in [
        vec![json("value.converter"), json("key.converter"), json("header.converter")],
        vec![json("value.converter"), envelope, nulls],
        vec![json("value.converter"), expanded, nulls],
        vec![
            ("value.converter", "io.confluent.connect.avro.AvroConverter"),
            ("value.converter.schema.registry.url", "http://registry"),
            nulls,
        ],
    ] {
        let keeps_null = more.contains(&nulls);
        let connector = settings(&[&decode[..], &more].concat());
        assert_eq!(connector.transforms.keeps_null_members(), Some(keeps_null), "{more:?}");
    }
    let bytes = ("value.converter", "org.apache.kafka.connect.converters.ByteArrayConverter");
    let judgement = judged(&[decode[0], decode[1], bytes]);
    let row = row(&judgement, "value.converter");
    assert!(row.verdict == Verdict::Honoured && row.note.contains("is parked"), "{row}");
}
