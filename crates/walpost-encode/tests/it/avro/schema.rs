//! Texts of schemas, property by property in the order of Confluent's converter.

use std::sync::Arc;

use walpost_encode::{
    EncodeErrorKind,
    avro::{AvroConverter, AvroOptions, AvroSerializer, SubjectName},
    connect::{
        Column, ColumnDescription, ColumnOptions, Decimal, Kind, Schema, SchemaField, Unconverted,
        Value,
    },
};

/// The text that the registry is asked for.
fn text_under(options: AvroOptions, schema: Schema, value: &Value) -> String {
    let mut converter = AvroConverter::new(options, false);
    match converter.convert("t", Some(&Arc::new(schema)), value) {
        Err(Unconverted::Ask(asked)) => asked.schema.to_string(),
        other => panic!("{other:?}"),
    }
}

fn text(schema: Schema, value: &Value) -> String {
    text_under(AvroOptions::default(), schema, value)
}

fn field(name: &str, schema: Schema) -> SchemaField {
    SchemaField { name: name.into(), schema: schema.into() }
}

fn some() -> Value {
    Value::String("a".into())
}

#[test]
fn a_type_without_properties_is_its_name() {
    assert_eq!(text(Schema::new(Kind::String), &some()), r#""string""#);
    assert_eq!(text(Schema::new(Kind::String).optional(), &some()), r#"["null","string"]"#);
    assert_eq!(text(Schema::new(Kind::Int64), &Value::Int64(1)), r#""long""#);
}

#[test]
fn what_connect_knows_is_kept_in_properties() {
    let json = Schema::logical(Kind::String, "io.debezium.data.Json", 1);
    assert_eq!(
        text(json.clone().optional(), &some()),
        r#"["null",{"type":"string","connect.version":1,"connect.name":"io.debezium.data.Json"}]"#
    );
    let plain = AvroOptions { connect_meta_data: false, ..AvroOptions::default() };
    assert_eq!(text_under(plain, json, &some()), r#""string""#);
    assert_eq!(
        text(Schema::new(Kind::Int16), &Value::Int16(1)),
        r#"{"type":"int","connect.type":"int16"}"#
    );
    let mood =
        Schema::logical(Kind::String, "io.debezium.data.Enum", 1).parameter("allowed", "a,b");
    let with_default = Schema { default: Some(some()), ..mood };
    assert_eq!(
        text(with_default.optional(), &some()),
        concat!(
            r#"[{"type":"string","connect.version":1,"connect.parameters":{"allowed":"a,b"},"#,
            r#""connect.default":"a","connect.name":"io.debezium.data.Enum"},"null"]"#
        )
    );
}

#[test]
fn decimals_and_dates_are_logical_types() {
    let decimal = |precision: &str| {
        Schema::logical(Kind::Bytes, "org.apache.kafka.connect.data.Decimal", 1)
            .parameter("scale", "2")
            .parameter("connect.decimal.precision", precision)
    };
    let value = Value::Decimal(Decimal::parse("1.50").unwrap());
    assert_eq!(
        text(decimal("10"), &value),
        concat!(
            r#"{"type":"bytes","scale":2,"precision":10,"connect.version":1,"#,
            r#""connect.parameters":{"scale":"2","connect.decimal.precision":"10"},"#,
            r#""connect.name":"org.apache.kafka.connect.data.Decimal","logicalType":"decimal"}"#
        )
    );
    let date = Schema::logical(Kind::Int32, "org.apache.kafka.connect.data.Date", 1);
    assert_eq!(
        text(date, &Value::Date(0)),
        concat!(
            r#"{"type":"int","connect.version":1,"#,
            r#""connect.name":"org.apache.kafka.connect.data.Date","logicalType":"date"}"#
        )
    );
}

#[test]
fn a_struct_is_a_record_and_its_second_use_a_name() {
    let point = ColumnDescription::from_type("p".into(), 600, -1);
    let point = Column::new(&point, &ColumnOptions::default()).unwrap();
    let place = point.value(Some(&"(1,2)".into())).unwrap();
    let schema = Schema {
        name: Some("p.public.outbox.order.Value".into()),
        ..Schema::new(Kind::Struct(vec![
            field("payload", Schema::new(Kind::String)),
            SchemaField { name: "a".into(), schema: Arc::clone(point.schema()) },
            SchemaField { name: "b".into(), schema: Arc::clone(point.schema()) },
            field("n", Schema { default: Some(Value::Int32(7)), ..Schema::new(Kind::Int32) }),
        ]))
    };
    let value = Value::Struct(vec![some(), place.clone(), place, Value::Int32(1)]);
    assert_eq!(
        text(schema, &value),
        concat!(
            r#"{"type":"record","name":"Value","namespace":"p.public.outbox.order","fields":["#,
            r#"{"name":"payload","type":"string"},"#,
            r#"{"name":"a","type":["null",{"type":"record","name":"Point","#,
            r#""namespace":"io.debezium.data.geometry","fields":["#,
            r#"{"name":"x","type":"double"},{"name":"y","type":"double"},"#,
            r#"{"name":"wkb","type":["null","bytes"],"default":null},"#,
            r#"{"name":"srid","type":["null","int"],"default":null}],"#,
            r#""connect.doc":"Geometry (POINT)","connect.version":1,"#,
            r#""connect.name":"io.debezium.data.geometry.Point"}],"default":null},"#,
            r#"{"name":"b","type":["null","io.debezium.data.geometry.Point"],"default":null},"#,
            r#"{"name":"n","type":{"type":"int","connect.default":7},"default":7}],"#,
            r#""connect.name":"p.public.outbox.order.Value"}"#
        )
    );
}

#[test]
fn maps_without_text_as_keys_are_arrays_of_pairs() {
    let int = || Arc::new(Schema::new(Kind::Int32));
    assert_eq!(
        text(Schema::new(Kind::Map(int(), int())), &Value::Map(vec![])),
        concat!(
            r#"{"type":"array","items":{"type":"record","name":"MapEntry","#,
            r#""namespace":"io.confluent.connect.avro","fields":["#,
            r#"{"name":"key","type":"int"},{"name":"value","type":"int"}]}}"#
        )
    );
    let text_key = Arc::new(Schema::new(Kind::String));
    assert_eq!(
        text(Schema::new(Kind::Map(text_key, int())), &Value::Map(vec![])),
        r#"{"type":"map","values":"int"}"#
    );
}

#[test]
fn names_that_avro_does_not_allow_are_refused_or_scrubbed() {
    let schema = || Schema {
        name: Some("1-p.public.Value".into()),
        ..Schema::new(Kind::Struct(vec![field("a-b", Schema::new(Kind::String))]))
    };
    let value = Value::Struct(vec![some()]);
    let mut converter = AvroConverter::new(AvroOptions::default(), false);
    let refused = converter.convert("t", Some(&Arc::new(schema())), &value);
    assert_eq!(refused, Err(EncodeErrorKind::InvalidAvro.into()));
    let scrubbing = AvroOptions { scrub_invalid_names: true, ..AvroOptions::default() };
    assert_eq!(
        text_under(scrubbing, schema(), &value),
        concat!(
            r#"{"type":"record","name":"Value","namespace":"x1_p.public","fields":["#,
            r#"{"name":"a_b","type":"string"}],"connect.name":"1-p.public.Value"}"#
        )
    );
}

#[test]
fn subjects_are_asked_for_by_their_strategy() {
    let schema = Arc::new(Schema {
        name: Some("a.B".into()),
        ..Schema::new(Kind::Struct(vec![field("a", Schema::new(Kind::String))]))
    });
    let value = Value::Struct(vec![some()]);
    let subject = |subject, is_key| {
        let options = AvroOptions { subject, ..AvroOptions::default() };
        match AvroConverter::new(options, is_key).convert("t", Some(&schema), &value) {
            Err(Unconverted::Ask(asked)) => asked.subject.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(subject(SubjectName::Topic, true), "t-key");
    assert_eq!(subject(SubjectName::Topic, false), "t-value");
    assert_eq!(subject(SubjectName::Record, false), "a.B");
    assert_eq!(subject(SubjectName::TopicRecord, false), "t-a.B");
}

#[test]
fn equal_structs_without_a_name_are_one_record() {
    let of = |kind| Schema::new(Kind::Struct(vec![field("a", Schema::new(kind))]));
    let schema = Schema {
        name: Some("v.V".into()),
        ..Schema::new(Kind::Struct(vec![
            field("x", of(Kind::Int32).optional()),
            field("y", of(Kind::Int64)),
            field("z", of(Kind::Int32)),
        ]))
    };
    let [int, long] = [Value::Int32(1), Value::Int64(1)].map(|value| Value::Struct(vec![value]));
    let value = Value::Struct(vec![int.clone(), long, int]);
    assert_eq!(
        text(schema, &value),
        concat!(
            r#"{"type":"record","name":"V","namespace":"v","fields":[{"name":"x","type":["null","#,
            r#"{"type":"record","name":"ConnectDefault","namespace":"io.confluent.connect.avro","#,
            r#""fields":[{"name":"a","type":"int"}]}],"default":null},{"name":"y","type":"#,
            r#"{"type":"record","name":"ConnectDefault2","namespace":"io.confluent.connect.avro","#,
            r#""fields":[{"name":"a","type":"long"}]}},{"name":"z","#,
            r#""type":"io.confluent.connect.avro.ConnectDefault"}],"connect.name":"v.V"}"#
        )
    );
}

#[test]
fn apicurios_serializer_takes_the_records_own_schema_and_the_length_of_bytes() {
    let fields = Schema::fields([("a", Schema::new(Kind::Int32).optional())]);
    let record = Schema { name: Some("s.R".into()), ..Schema::new(fields) }.optional();
    let structure = Value::Struct(vec![Value::Int32(1)]);
    let of = |serializer, schema: &Schema, value: &Value| {
        let options = AvroOptions { serializer, ..AvroOptions::default() };
        let mut converter = AvroConverter::new(options, false);
        let schema = Arc::new(schema.clone());
        let Err(Unconverted::Ask(asked)) = converter.convert("t", Some(&schema), value) else {
            panic!("nobody has told the id")
        };
        converter.learn(&asked, 7);
        let bytes = converter.convert("t", Some(&schema), value).unwrap().unwrap();
        let null = converter.convert("t", Some(&schema), &Value::Null);
        assert_eq!(null.is_ok(), schema.optional);
        (asked.schema.starts_with("[\"null\","), bytes[5..].to_vec())
    };
    let [confluent, apicurio] = [AvroSerializer::Confluent, AvroSerializer::Apicurio];
    assert_eq!(of(confluent, &record, &structure), (true, vec![2, 2, 2]));
    assert_eq!(of(apicurio, &record, &structure), (false, vec![2, 2]));
    let (bytes, value) = (Schema::new(Kind::Bytes), Value::Bytes(vec![0, 255].into()));
    assert_eq!(of(confluent, &bytes, &value), (false, vec![0, 255]));
    assert_eq!(of(apicurio, &bytes, &value), (false, vec![4, 0, 255]));
    let text = Schema::new(Kind::String).optional();
    let value = Value::String("a".into());
    assert_eq!(of(apicurio, &text, &value), of(confluent, &text, &value));
}
