//! Logical messages through the transform that decodes them, and the router.

use serde_json::{Value as Json, json};
use walpost_encode::{
    Unencoded,
    connect::{
        Converter, Converters, EnvelopeNames, ExpandOptions, HeaderConverter, JsonConverter,
        JsonConverterOptions, NullField, Typing, TypingOptions,
    },
};
use walpost_event::{Message, RowChange};
use walpost_router::{MissingColumn, Routed, Router, RouterConfig};

use super::{ask::Oracle, columns::differences};

/// Payload and further members of a message.
const CONTENTS: [(&str, &str); 16] = [
    (r#"{"a": 1, "b": [{"x": 1.5, "y": {}}], "c": {"d": {"e": true}}}"#, ""),
    (r#"{"a": null, "b": [], "c": {"n": null}}"#, ""),
    (r#""{\"a\": 1}""#, ""),
    ("\"text\"", r#","type":"T","n":7"#),
    ("42", r#","n":3000000000,"x":{"y":[1,2]}"#),
    ("1.10", r#","type":null,"x":[{"a":1},{"b":"c"}]"#),
    ("true", r#","version":7,"type":"T""#),
    ("[1, 2]", r#","version":8,"n":true"#),
    ("[{\"a\": 1}, {\"a\": null}]", r#","version":null"#),
    ("null", ""),
    ("[]", ""),
    ("{}", r#","n":1.5"#),
    (r#"{"a": [1, "b"]}"#, ""),
    (r#"{"a": [{"b": 1}, {"b": "c"}]}"#, ""),
    ("9223372036854775808", ""),
    (r#"{"a-b": {"1": 2}}"#, r#","x":"\u00e4""#),
];

struct Way {
    router: Router,
    typing: Typing,
    converters: Converters,
    decoder: Json,
    theirs: Json,
}

fn way(placement: Option<&str>, keeps_null: bool, expands: bool, version: bool) -> Way {
    let json_class = "org.apache.kafka.connect.json.JsonConverter";
    let mut router = json!({ "table.field.additional.missing": "ignore" });
    if let Some(placement) = placement {
        router["table.fields.additional.placement"] = placement.into();
    }
    if expands {
        router["table.expand.json.payload"] = "true".into();
    }
    if version {
        router["table.field.event.schema.version"] = "version".into();
    }
    let null_field = if keeps_null { NullField::OptionalBytes } else { NullField::Ignore };
    let json = || Converter::Json(JsonConverter::new(JsonConverterOptions::default()));
    Way {
        router: Router::new(RouterConfig {
            additional_placement: placement.map(str::to_owned),
            additional_missing: MissingColumn::Ignore,
            ..RouterConfig::default()
        })
        .unwrap(),
        typing: Typing::new(TypingOptions {
            expand: expands.then(ExpandOptions::default),
            messages: ExpandOptions { null_field, ..ExpandOptions::default() },
            version_column: version.then(|| "version".into()),
            ignore_missing: true,
            envelope_names: EnvelopeNames::FirstRouted,
            ..TypingOptions::default()
        }),
        converters: Converters { key: json(), value: json(), header: HeaderConverter::Simple },
        decoder: json!({ "fields.null.include": keeps_null.to_string() }),
        theirs: json!({
            "router": router,
            "key": { "class": json_class, "config": {}, "key": true },
            "value": { "class": json_class, "config": {} },
            "header": {
                "class": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
                "config": {}, "header": true,
            },
        }),
    }
}

/// The same with `route.tombstone.on.empty.payload`.
fn with_tombstones(mut way: Way) -> Way {
    let config = way.router.config().clone();
    let config = RouterConfig { tombstone_on_empty_payload: true, ..config };
    way.router = Router::new(config).unwrap();
    way.theirs["router"]["route.tombstone.on.empty.payload"] = "true".into();
    way
}

fn ours(way: &mut Way, content: &str) -> Result<Message, Unencoded> {
    let row = way.router.row_from_message(content.as_bytes()).unwrap();
    let Routed::Record(record) = way.router.route(&RowChange::insert(row.clone())).unwrap() else {
        panic!("an insert is an event")
    };
    let typed = way.typing.typed_message(&record, &row, &content.into())?;
    way.converters.convert(&typed)
}

#[test]
#[ignore = "deep: needs a Java compiler and Kafka Connect"]
fn messages_become_what_debezium_makes_of_them() {
    let mut oracle = Oracle::start();
    let placed = Some("type:header,n:envelope,x:envelope:y,n:header:m");
    let mut ways = [
        way(None, false, false, false),
        way(None, true, true, false),
        way(placed, false, true, false),
        way(placed, true, false, true),
        with_tombstones(way(None, false, false, false)),
        with_tombstones(way(None, true, false, false)),
    ];
    let mut found = Vec::new();
    let (mut equal, mut failed) = (0, 0);
    for (at, way) in ways.iter_mut().enumerate() {
        let keyed = |index: usize| if index.is_multiple_of(2) { "\"o-1\"" } else { "17" };
        let with_keys = CONTENTS.into_iter().enumerate();
        let all = with_keys.flat_map(|(index, content)| {
            [(index, content, keyed(index)), (index, content, "null")]
        });
        for (index, (payload, more), key) in all {
            let content = format!(
                r#"{{"id":"e{index}","aggregatetype":"order","aggregateid":{key},"payload":{payload}{more}}}"#
            );
            let question = json!({
                "op": "decode", "decoder": way.decoder, "way": way.theirs, "content": content,
            });
            let (ours, theirs) = (ours(way, &content), oracle.ask(&question));
            if ours.is_err() && theirs.get("error").is_some() {
                failed += 1;
                continue;
            }
            equal += 1;
            found.extend(differences(&format!("{content}, way {at}"), ours, &theirs));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(equal > 30 && failed > 5, "{equal} alike, {failed} refused by both");
}
