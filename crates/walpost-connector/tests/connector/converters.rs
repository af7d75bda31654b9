use walpost_connector::{Converter, HeaderConverter, Origin, Properties, Unknown, Verdict, judge};
use walpost_encode::connect::Charset;

use super::{JSON, STRING, judged, refused, row, settings, verdict, with};

const BYTES: &str = "org.apache.kafka.connect.converters.ByteArrayConverter";
const BINARY: &str = "io.debezium.converters.BinaryDataConverter";
const ENVELOPE: (&str, &str) =
    ("transforms.outbox.table.fields.additional.placement", "a:envelope");
const EXPANDED: (&str, &str) = ("transforms.outbox.table.expand.json.payload", "true");

/// Properties, the one that is refused, and what is said of it.
type Case = (&'static [(&'static str, &'static str)], &'static str, &'static str);

const OF_HEADERS: (&str, &str) = ("header.converter.schema.registry.url", "http://registry");

const WRONG: &[Case] = &[
    (
        &[("key.converter", BYTES), ("binary.handling.mode", "hex")],
        "key.converter",
        "delegate.converter.type",
    ),
    (
        &[("key.converter", BINARY), ("heartbeat.interval.ms", "1000")],
        "key.converter",
        "fails at the first heartbeat",
    ),
    (
        &[("header.converter", STRING), ("header.converter.converter.encoding", "EBCDIC")],
        "header.converter.converter.encoding",
        "write UTF-8 or one of US-ASCII, ISO-8859-1,",
    ),
    (&[("value.converter", BYTES), ENVELOPE], "value.converter", "is a structure"),
    (&[("value.converter", BINARY), ENVELOPE], "value.converter", "is a structure"),
    (
        &[("value.converter", BYTES), ("binary.handling.mode", "hex")],
        "value.converter",
        "write bytes there",
    ),
    (
        &[("value.converter", "io.debezium.converters.ByteArrayConverter")],
        "value.converter",
        "BinaryDataConverter",
    ),
    (
        &[("value.converter", "org.apache.kafka.connect.converters.LongConverter")],
        "value.converter",
        "write one of",
    ),
    (
        &[("value.converter", "org.apache.kafka.connect.storage.SimpleHeaderConverter")],
        "value.converter",
        "of headers alone",
    ),
    (&[("header.converter", BYTES)], "header.converter", "the header id is none"),
    (
        &[("value.converter", BYTES), ("heartbeat.interval.ms", "1000")],
        "value.converter",
        "fails at the first heartbeat",
    ),
    (
        &[("value.converter", "io.confluent.connect.json.JsonSchemaConverter")],
        "value.converter.schema.registry.url",
        "it is missing",
    ),
    (
        &[("header.converter", "io.confluent.connect.json.JsonSchemaConverter"), OF_HEADERS],
        "header.converter",
        "no converter of headers",
    ),
    (
        &[("value.converter", "io.confluent.connect.protobuf.ProtobufConverter")],
        "value.converter.schema.registry.url",
        "it is missing",
    ),
    (
        &[("value.converter", "io.apicurio.registry.utils.converter.ProtobufConverter")],
        "value.converter",
        "write io.confluent.connect.protobuf.ProtobufConverter",
    ),
    (
        &[("value.converter", "io.confluent.connect.avro.AvroConverter")],
        "value.converter.schema.registry.url",
        "it is missing",
    ),
    (
        &[
            ("value.converter", "io.confluent.connect.avro.AvroConverter"),
            ("value.converter.schema.registry.url", "https://a, localhost:8081"),
        ],
        "value.converter.schema.registry.url",
        "write it as http://host:8081",
    ),
    (
        &[("value.converter", BINARY), ("value.converter.delegate.converter.type", "a.B")],
        "value.converter.delegate.converter.type",
        "write one of",
    ),
    (
        &[("value.converter", JSON), ("column.propagate.source.type", ".*")],
        "column.propagate.source.type",
        "schemas.enable = false",
    ),
];

#[test]
fn bytes_are_taken_beside_an_expansion_that_leaves_them_as_they_are() {
    for class in [BYTES, BINARY] {
        settings(&[("value.converter", class), EXPANDED]);
    }
}

#[test]
fn converters_that_cannot_carry_what_comes_to_them_are_refused() {
    for (more, property, says) in WRONG {
        refused(more, property, says);
    }
}

#[test]
fn converters_that_can_are_taken_and_what_is_strange_is_told() {
    for more in [EXPANDED, ENVELOPE] {
        let judgement = judged(&[more]);
        let row = row(&judgement, "value.converter");
        assert_eq!(row.verdict, Verdict::Honoured);
        assert!(row.note.contains("Struct{…}"), "{row}");
    }
    let bare = settings(&[("value.converter", "io.debezium.converters.ByteBufferConverter")]);
    assert_eq!(bare.converters.value, Converter::BinaryData { delegate: None });
    let key =
        settings(&[("key.converter", BINARY), ("key.converter.delegate.converter.type", STRING)]);
    let delegate = Some(Box::new(Converter::String));
    assert_eq!(key.converters.key, Converter::BinaryData { delegate });
    let judgement = judged(&[("key.converter", BYTES)]);
    assert!(row(&judgement, "key.converter").note.contains("of the type bytea alone"));
    assert_eq!(judgement.connector.unwrap().converters.key, Converter::ByteArray);
    let json =
        settings(&[("header.converter", JSON), ("header.converter.schemas.enable", "false")]);
    assert!(matches!(json.converters.header, HeaderConverter::Json(json) if !json.schemas));
}

#[test]
fn text_has_the_encoding_that_is_asked_for() {
    let of = |encoding| settings(&[("value.converter.converter.encoding", encoding)]);
    for utf8 in ["UTF-8", "utf8", " utf-8 "] {
        assert_eq!(of(utf8).converters.value, Converter::String);
    }
    assert_eq!(of("latin1").converters.value, Converter::StringIn(Charset::Latin1));
    let header = settings(&[
        ("header.converter", STRING),
        ("header.converter.converter.encoding", "UTF-16LE"),
    ]);
    assert_eq!(header.converters.header, HeaderConverter::StringIn(Charset::Utf16Le));
}

#[test]
fn a_delegate_has_no_delegate_without_end() {
    const BINARY: &str = "io.debezium.converters.BinaryDataConverter";
    let mut more = vec![("value.converter".to_owned(), BINARY)];
    for depth in 1..50 {
        more.push((format!("value.converter{}", ".delegate.converter.type".repeat(depth)), BINARY));
    }
    let more: Vec<(&str, &str)> = more.iter().map(|(name, value)| (&**name, *value)).collect();
    assert!(judged(&more).connector.is_some());
}

#[test]
fn options_of_a_converter_that_is_not_named_beside_them_are_told_to_be_nothing() {
    let worker = Properties::from_pairs([
        ("key.converter", STRING),
        ("value.converter", JSON),
        ("value.converter.schemas.enable", "false"),
    ]);
    let base = with(&[("value.converter.schemas.enable", "true")]);
    let own = base.iter().filter(|property| property.name != "value.converter");
    let connector = Properties::from_pairs(own.map(|p| (p.name.clone(), p.value.clone())));
    let judgement = judge(&connector, Some(&worker), Unknown::Refuse);
    let row = row(&judgement, "value.converter.schemas.enable");
    assert_eq!((row.verdict, row.origin), (Verdict::Ignored, Origin::Connector), "{row}");
    assert!(row.note.contains("only beside value.converter"), "{row}");
    let connector = judgement.connector.unwrap();
    assert!(matches!(connector.converters.value, Converter::Json(json) if !json.schemas));
}

#[test]
fn apicurios_converter_is_mapped_to_the_api_for_confluents_clients() {
    const CLASS: &str = "io.apicurio.registry.utils.converter.AvroConverter";
    let more = [
        ("value.converter", CLASS),
        ("value.converter.apicurio.registry.url", "http://registry:8080/apis/registry/v2"),
        ("value.converter.apicurio.registry.as-confluent", "true"),
        ("value.converter.apicurio.registry.use-id", "contentId"),
        ("value.converter.apicurio.registry.headers.enabled", "false"),
        ("value.converter.apicurio.registry.auto-register", "true"),
    ];
    let Converter::Avro(avro) = settings(&more).converters.value else { panic!("Avro") };
    assert_eq!(avro.registry.urls[0].expose(), "http://registry:8080/apis/ccompat/v7");
    assert!(avro.registry.auto_register && avro.is_apicurio);
    for (left_out, expected) in [(2, "write true"), (3, "write contentId"), (4, "write false")] {
        let (name, _) = more[left_out];
        let mut all = more.to_vec();
        all.remove(left_out);
        refused(&all, name, expected);
    }
}

#[test]
fn an_option_of_another_converter_does_nothing_and_an_unknown_one_is_refused() {
    for (name, value) in [
        ("key.converter.schemas.enable", "false"),
        ("value.converter.schema.registry.url", "http://registry"),
        ("value.converter.delegate.converter.type", JSON),
    ] {
        let (found, note) = verdict(&[(name, value)]);
        assert_eq!(found, Verdict::Ignored, "{name}: {note}");
        assert!(note.contains("of another converter"), "{name}: {note}");
    }
    let name = "value.converter.schemas.enabled";
    refused(
        &[(name, "false"), ("value.converter", JSON)],
        name,
        "did you mean value.converter.schemas.enable?",
    );
}

#[test]
fn options_of_a_registrys_converters_that_change_bytes_and_are_not_built_are_refused() {
    let class = ("value.converter", "io.confluent.connect.avro.AvroConverter");
    let url = ("value.converter.schema.registry.url", "http://registry");
    for (option, value) in [
        ("use.latest.version", "true"),
        ("use.schema.id", "7"),
        ("use.latest.with.metadata", "a=b"),
        ("use.schema.guid", "x"),
        ("normalize.schemas", "true"),
        ("enhanced.avro.schema.support", "true"),
        ("ignore.default.for.nullables", "true"),
        ("generalized.sum.type.support", "true"),
        ("allow.optional.map.keys", "true"),
        ("schema.registry.ssl.truststore.location", "/ca.pem"),
        ("schema.registry.ssl.keystore.type", "PEM"),
        ("value.schema.id.serializer", "x.HeaderSchemaIdSerializer"),
        ("no.such.option", "x"),
    ] {
        let name = format!("value.converter.{option}");
        refused(&[class, url, (&name, value)], &name, "");
    }
    let json = ("value.converter", "io.confluent.connect.json.JsonSchemaConverter");
    for (option, value) in [
        ("use.latest.version", "true"),
        ("normalize.schemas", "true"),
        ("preserve.additional.properties", "true"),
        ("json.fail.invalid.schema", "true"),
        ("json.indent.output", "true"),
        ("connect.meta.datum", "true"),
    ] {
        let name = format!("value.converter.{option}");
        refused(&[json, url, (&name, value)], &name, "");
    }
    let protobuf = ("value.converter", "io.confluent.connect.protobuf.ProtobufConverter");
    for (option, value) in [
        ("use.latest.version", "true"),
        ("skip.known.types", "false"),
        ("schema.format", "normalized"),
        ("generalized.sum.type.support", "true"),
    ] {
        let name = format!("value.converter.{option}");
        refused(&[protobuf, url, (&name, value)], &name, "");
    }
    let connector = settings(&[class, url, ("value.converter.use.latest.version", "false")]);
    assert!(matches!(connector.converters.value, Converter::Avro(_)));
}
