//! Rows under the options of Debezium's router: records with their types, and
//! the messages of them.

use std::sync::Arc;

use smallvec::smallvec;
use walpost_encode::{
    EncodeErrorKind, Part, Unencoded,
    connect::{
        CatalogColumn, Charset, ConnectEncoding, Converter, Converters, Difference, EnvelopeNames,
        ExpandOptions, HeaderConverter, JsonConverter, JsonConverterOptions, Kind, NameAdjustment,
        RowShape, ShapeOptions, TypeDescription, TypeKind, TypedHeader, TypedValue, Typing,
        TypingOptions, Value,
    },
};
use walpost_event::{
    Column, Record, RecordValue, Relation, ReplicaIdentity, Row, RowChange, type_oid,
};
use walpost_router::{Routed, Router, RouterConfig};

const NAMES: [&str; 5] = ["id", "aggregatetype", "aggregateid", "type", "payload"];

/// Of a type that no server has built in.
const MOOD: u32 = 90_001;

fn relation(name: &str, types: [u32; 5]) -> Arc<Relation> {
    let column = |(name, type_oid): (&str, u32)| Column {
        name: name.into(),
        type_oid,
        type_modifier: -1,
        is_key: false,
    };
    Arc::new(Relation {
        oid: 1,
        schema: "public".into(),
        name: name.into(),
        replica_identity: ReplicaIdentity::Default,
        columns: NAMES.into_iter().zip(types).map(column).collect(),
    })
}

fn texts(name: &str) -> Arc<Relation> {
    let text = type_oid::TEXT;
    relation(name, [text, text, text, text, type_oid::JSONB])
}

fn row(relation: &Arc<Relation>, route: &str, payload: &str) -> Row {
    Row::from_text(
        Arc::clone(relation),
        [Some("e1"), Some(route), Some("7"), Some("T"), Some(payload)],
    )
}

fn route(config: RouterConfig, row: &Row) -> Record {
    let mut router = Router::new(config).expect("a configuration");
    match router.route(&RowChange::insert(row.clone())).expect("a row that is routed") {
        Routed::Record(record) => record,
        Routed::Skipped(_) => panic!("an insert is an event"),
    }
}

fn enveloping() -> RouterConfig {
    RouterConfig {
        additional_placement: Some("type:envelope".to_owned()),
        ..RouterConfig::default()
    }
}

fn shape(relation: &Relation, catalog: &[CatalogColumn], without_defaults: &[&str]) -> RowShape {
    let labels = vec!["a".to_owned(), "b".to_owned()];
    let mood = TypeDescription { oid: MOOD, name: "mood".into(), kind: TypeKind::Enum { labels } };
    let options = ShapeOptions {
        topic_prefix: "p 1".to_owned(),
        schema_names: NameAdjustment::Avro,
        without_defaults: without_defaults.iter().copied().map(str::to_owned).collect(),
        ..ShapeOptions::default()
    };
    RowShape::new(relation, catalog, |oid| (oid == MOOD).then(|| mood.clone()), &options)
}

fn typing(envelope_names: EnvelopeNames) -> Typing {
    Typing::new(TypingOptions { envelope_names, ..TypingOptions::default() })
}

fn json() -> Converter {
    Converter::Json(JsonConverter::new(JsonConverterOptions::default()))
}

/// The name of the schema of an envelope that is routed so.
fn envelope_name(typing: &mut Typing, relation: &Arc<Relation>, by: &str) -> String {
    let row = row(relation, by, "{}");
    let record = route(enveloping(), &row);
    let shape = shape(relation, &[], &[]);
    let typed = typing.typed(&record, &row, &shape).expect("an envelope");
    let schema = typed.value.schema.expect("an envelope has a schema");
    schema.name().expect("that has a name").to_owned()
}

#[test]
fn an_envelope_has_the_name_of_its_own_route_and_table_or_of_the_first() {
    let (one, other) = (texts("outbox"), texts("more"));
    let mut own = typing(EnvelopeNames::OwnRoute);
    let mut first = typing(EnvelopeNames::FirstRouted);
    for _ in 0..2 {
        assert_eq!(envelope_name(&mut own, &one, "a"), "p_1.public.outbox.a.Value");
        assert_eq!(envelope_name(&mut own, &one, "b"), "p_1.public.outbox.b.Value");
        assert_eq!(envelope_name(&mut own, &other, "a"), "p_1.public.more.a.Value");
        for (relation, by) in [(&one, "a"), (&one, "b"), (&other, "a")] {
            assert_eq!(envelope_name(&mut first, relation, by), "p_1.public.outbox.a.Value");
        }
    }
    assert_eq!(TypingOptions::default().envelope_names, EnvelopeNames::OwnRoute);
}

/// Debezium has the envelope's schema before it finds the payload empty.
#[test]
fn a_tombstone_names_the_envelopes_behind_it() {
    let relation = texts("outbox");
    let config = RouterConfig { tombstone_on_empty_payload: true, ..enveloping() };
    let router = Router::new(config.clone()).unwrap();
    let mut typing = Typing::new(TypingOptions {
        envelope_names: EnvelopeNames::FirstRouted,
        envelope: router.envelope_columns(),
        ..TypingOptions::default()
    });
    let mut name = |by: &str, payload: &str| {
        let row = row(&relation, by, payload);
        let record = route(config.clone(), &row);
        let typed = typing.typed(&record, &row, &shape(&relation, &[], &[])).unwrap();
        typed.value.schema.map(|schema| schema.name().expect("an envelope has a name").to_owned())
    };
    assert_eq!(name("a", " "), None);
    assert_eq!(name("b", "{}").as_deref(), Some("p_1.public.outbox.a.Value"));
}

/// Debezium looks at what a payload has become, and not at its text in PostgreSQL.
#[test]
fn a_string_that_is_blank_is_a_tombstone_and_nothing_else_that_is_empty() {
    let (text, varbit) = (type_oid::TEXT, 1562);
    let options = TypingOptions { tombstone_on_empty_payload: true, ..TypingOptions::default() };
    let mut typing = Typing::new(options);
    let mut is_tombstone = |type_oid: u32, payload: &str| {
        let relation = relation("outbox", [text, text, text, text, type_oid]);
        let row = row(&relation, "a", payload);
        [RouterConfig::default(), enveloping()].map(|config| {
            let record = route(config, &row);
            let typed = typing.typed(&record, &row, &shape(&relation, &[], &[])).unwrap();
            typed.value == TypedValue::NONE
        })
    };
    assert_eq!(is_tombstone(text, ""), [true; 2]);
    assert_eq!(is_tombstone(text, "\t \n"), [true; 2]);
    assert_eq!(is_tombstone(text, "\u{a0}"), [false; 2]);
    assert_eq!(is_tombstone(varbit, ""), [false; 2]);
    assert_eq!(is_tombstone(type_oid::BYTEA, "\\x"), [false; 2]);
}

#[test]
fn the_schema_of_an_envelope_is_worked_out_once() {
    let relation = texts("outbox");
    let shape = shape(&relation, &[], &[]);
    for names in [EnvelopeNames::OwnRoute, EnvelopeNames::FirstRouted] {
        let mut typing = typing(names);
        let mut router = Router::new(enveloping()).unwrap();
        let mut schema = |by: &str| {
            let row = row(&relation, by, "{}");
            let Routed::Record(record) = router.route(&RowChange::insert(row.clone())).unwrap()
            else {
                panic!("an insert is an event")
            };
            typing.typed(&record, &row, &shape).unwrap().value.schema.unwrap()
        };
        let first = schema("a");
        assert!(Arc::ptr_eq(&first, &schema("a")), "{names:?}");
        let is_shared = names == EnvelopeNames::FirstRouted;
        assert_eq!(Arc::ptr_eq(&first, &schema("b")), is_shared, "{names:?}");
    }
}

/// The topic of Debezium's own records keeps what its schemas may not have.
#[test]
fn a_shape_knows_the_topic_before_the_router() {
    let relation = texts("out-box");
    assert_eq!(&**shape(&relation, &[], &[]).topic(), "p_1.public.out-box");
}

#[test]
fn a_type_is_that_of_the_stream_whatever_the_catalog_says_of_the_column_now() {
    let text = type_oid::TEXT;
    let relation = relation("outbox", [text, text, text, MOOD, text]);
    let column = |type_oid, default: &str| CatalogColumn {
        name: "type".into(),
        type_oid,
        nullable: false,
        default: Some(default.to_owned()),
        key_place: None,
    };
    let now = shape(&relation, &[column(MOOD, "'a'::mood")], &[]);
    let (_, mood) = now.column_named("type").unwrap();
    assert!(!mood.schema().optional);
    assert_eq!(mood.schema().name(), Some("io.debezium.data.Enum"));
    assert_eq!(mood.default_text(), Some("a"));
    // It has become a number since.
    let later = shape(&relation, &[column(type_oid::INT4, "7")], &[]);
    let (_, mood) = later.column_named("type").unwrap();
    assert!(!mood.schema().optional, "that is told by the name alone, as in Debezium");
    assert_eq!(mood.schema().name(), Some("io.debezium.data.Enum"));
    assert_eq!(mood.default_text(), None);
}

#[test]
fn the_key_of_a_row_is_that_of_its_table_in_its_order() {
    let relation = texts("outbox");
    let column = |name: &str, key_place| CatalogColumn {
        name: name.into(),
        type_oid: type_oid::TEXT,
        nullable: false,
        default: None,
        key_place,
    };
    let catalog = [column("id", Some(1)), column("type", None), column("aggregatetype", Some(0))];
    let of_two = shape(&relation, &catalog, &[]);
    // PostgreSQL sends nothing but the key of the row before.
    let old = Row::from_text(Arc::clone(&relation), [Some("e1"), Some("order"), None, None, None]);
    let key = of_two.key(&old).unwrap().unwrap();
    let mut json = Converter::Json(JsonConverter::new(JsonConverterOptions::default()));
    let bytes = json.convert("t", key.schema.as_ref(), &key.value).unwrap().unwrap();
    assert_eq!(
        bytes,
        concat!(
            r#"{"schema":{"type":"struct","fields":["#,
            r#"{"type":"string","optional":false,"field":"aggregatetype"},"#,
            r#"{"type":"string","optional":false,"field":"id"}],"optional":false,"#,
            r#""name":"p_1.public.outbox.Key"},"payload":{"aggregatetype":"order","id":"e1"}}"#
        )
    );
    assert!(shape(&relation, &[], &[]).key(&old).unwrap().is_none());
}

#[test]
fn names_are_those_of_the_options() {
    let text = type_oid::TEXT;
    let mut relation = Relation::clone(&relation("outbox", [text, text, text, text, text]));
    relation.columns[3].name = "event-type".into();
    let options = ShapeOptions {
        topic_prefix: "p".to_owned(),
        topic_delimiter: "_".to_owned(),
        field_names: NameAdjustment::Avro,
        ..ShapeOptions::default()
    };
    let known = CatalogColumn {
        name: "event-type".into(),
        type_oid: text,
        nullable: false,
        default: Some("'x'::text".to_owned()),
        key_place: None,
    };
    let shape = RowShape::new(&relation, &[known], |_| None, &options);
    assert_eq!(&**shape.topic(), "p_public_outbox");
    for name in ["event_type", "event-type"] {
        let (index, column) = shape.column_named(name).expect(name);
        assert_eq!((index, &**column.name()), (3, "event_type"));
        assert_eq!((column.schema().optional, column.default_text()), (false, Some("x")));
    }
    let relation = Arc::new(relation);
    let row = row(&relation, "a", "{}");
    let config = RouterConfig {
        additional_placement: Some("event_type:envelope".to_owned()),
        field_names: NameAdjustment::Avro,
        ..RouterConfig::default()
    };
    let record = route(config, &row);
    let typed = typing(EnvelopeNames::OwnRoute).typed(&record, &row, &shape).unwrap();
    let schema = typed.value.schema.expect("an envelope has a schema");
    assert_eq!(schema.name(), Some("p_public_outbox.a.Value"));
    assert!(schema.field("event_type").is_some());
}

#[test]
fn an_empty_array_at_the_top_is_text_without_a_schema_but_in_an_envelope() {
    let relation = texts("outbox");
    let row = row(&relation, "a", "[]");
    let shape = shape(&relation, &[], &[]);
    let options =
        TypingOptions { expand: Some(ExpandOptions::default()), ..TypingOptions::default() };
    let mut typing = Typing::new(options);
    let record = route(RouterConfig::default(), &row);
    let typed = typing.typed(&record, &row, &shape).unwrap();
    let (key, value) = (Converter::String, json());
    let mut converters = Converters { key, value, header: HeaderConverter::Simple };
    let message = converters.convert(&typed).unwrap();
    assert_eq!(message.value.as_deref(), Some(&br#"{"schema":null,"payload":"[]"}"#[..]));
    let error = typing.typed(&route(enveloping(), &row), &row, &shape).unwrap_err();
    let expected = EncodeErrorKind::Expansion(Difference::TopLevelEmptyArray);
    assert_eq!((error.kind(), error.part()), (&expected, &Part::Member("payload".into())));
}

#[test]
fn text_has_the_encoding_of_its_converter() {
    let relation = texts("outbox");
    let row = row(&relation, "a", "\"é\"");
    let record = route(RouterConfig::default(), &row);
    let latin = || Converter::StringIn(Charset::Latin1);
    let header = HeaderConverter::Of(Converter::StringIn(Charset::Utf16Le));
    let converters = Converters { key: latin(), value: latin(), header };
    let mut encoding = ConnectEncoding { typing: typing(EnvelopeNames::OwnRoute), converters };
    let message = encoding.encode(&record, &row, &shape(&relation, &[], &[])).unwrap();
    assert_eq!(message.key.as_deref(), Some(&b"7"[..]));
    assert_eq!(message.value.as_deref(), Some(&b"\"\xe9\""[..]));
    assert_eq!(message.headers[0].value.as_deref(), Some(&b"e\x001\x00"[..]));
}

#[test]
fn what_routes_dates_and_partitions_keeps_its_null() {
    let relation = texts("outbox");
    let column = |name: &str, default: &str| CatalogColumn {
        name: name.into(),
        type_oid: type_oid::TEXT,
        nullable: true,
        default: Some(default.to_owned()),
        key_place: None,
    };
    let catalog = [column("aggregatetype", "'x'::text"), column("type", "'y'::text")];
    let row = Row::from_text(Arc::clone(&relation), [Some("e1"), None, Some("7"), None, None]);
    let router = Router::new(RouterConfig::default()).unwrap();
    let names = router.columns_without_defaults();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let kept = shape(&relation, &catalog, &names).with_defaults(&row).expect("a default");
    assert_eq!((kept.text(1), kept.text(3)), (None, Some("y")));
    let all = shape(&relation, &catalog, &[]).with_defaults(&row).expect("a default");
    assert_eq!((all.text(1), all.text(3)), (Some("x"), Some("y")));
}

#[test]
fn transforms_change_typed_records_before_they_are_bytes() {
    let relation = texts("outbox");
    let row = row(&relation, "a", r#"{"n": 1}"#);
    let record = route(RouterConfig::default(), &row);
    let options =
        TypingOptions { expand: Some(ExpandOptions::default()), ..TypingOptions::default() };
    let shape = shape(&relation, &[], &[]);
    let mut typed = Typing::new(options).typed(&record, &row, &shape).unwrap();
    assert!(!typed.is_tombstone());
    let Some(Kind::Struct(fields)) = typed.value.schema.as_ref().map(|schema| &schema.kind) else {
        panic!("a struct")
    };
    assert_eq!(&*fields[0].name, "n");
    let number = TypedValue {
        schema: Some(Arc::clone(&fields[0].schema)),
        value: match &typed.value.value {
            Value::Struct(values) => values[0].clone(),
            other => panic!("{other:?}"),
        },
    };
    typed.headers = smallvec![TypedHeader { name: "n".into(), value: number }];
    typed.topic = "other".into();
    let (key, value) = (Converter::String, json());
    let mut converters = Converters { key, value, header: HeaderConverter::Simple };
    let message = converters.convert(&typed).unwrap();
    assert_eq!(&*message.topic, "other");
    assert_eq!(message.headers[0].value.as_deref(), Some(&b"1"[..]));
    typed.value = TypedValue::NONE;
    assert!(typed.is_tombstone());
    assert_eq!(converters.convert(&typed).unwrap().value, None);
}

#[test]
fn what_no_converter_takes_is_to_be_parked() {
    let relation = texts("outbox");
    let row = row(&relation, "a", "{}");
    let record = route(RouterConfig::default(), &row);
    let mut encoding = ConnectEncoding {
        typing: typing(EnvelopeNames::OwnRoute),
        converters: Converters {
            key: Converter::String,
            value: Converter::ByteArray,
            header: HeaderConverter::Simple,
        },
    };
    let refused = encoding.encode(&record, &row, &shape(&relation, &[], &[]));
    let Err(Unencoded::Park(error)) = refused else { panic!("{refused:?}") };
    assert_eq!((error.kind(), error.part()), (&EncodeErrorKind::NotBytes, &Part::Value));
    assert_eq!(error.topic(), "outbox.event.a");
}

/// Text and bytes go from the record to the message without a copy.
#[test]
fn text_and_bytes_stay_shared_with_the_row() {
    let text = type_oid::TEXT;
    for (oid, payload, converter) in [
        (type_oid::JSONB, "{\"a\": 1}", Converter::String),
        (type_oid::BYTEA, "\\x616263", Converter::ByteArray),
        (type_oid::BYTEA, "\\x616263", Converter::BinaryData(None)),
    ] {
        let relation = relation("outbox", [text, text, text, text, oid]);
        let row = row(&relation, "a", payload);
        let record = route(RouterConfig::default(), &row);
        let header = HeaderConverter::Simple;
        let converters = Converters { key: Converter::String, value: converter, header };
        let mut encoding = ConnectEncoding { typing: typing(EnvelopeNames::OwnRoute), converters };
        let message = encoding.encode(&record, &row, &shape(&relation, &[], &[])).unwrap();
        let RecordValue::Payload(payload) = &record.value else { panic!("a payload") };
        let ours = [message.value, message.key, message.headers[0].value.clone()];
        let fields = [payload, record.key.as_ref().unwrap(), &record.headers[0].field];
        for (ours, field) in ours.iter().zip(fields) {
            let (ours, theirs) = (ours.as_ref().unwrap(), field.bytes.as_ref().unwrap());
            assert_eq!(ours, theirs);
            assert_eq!(ours.as_ptr(), theirs.as_ptr());
        }
    }
}
