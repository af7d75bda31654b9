//! Records whose schemas the registry has to know first.

use std::sync::Arc;

use walpost_encode::{
    Part, Unencoded, UnknownSchema,
    avro::{AvroConverter, AvroOptions},
    connect::{
        Converter, Converters, HeaderConverter, Kind, Schema, TypedHeader, TypedRecord, TypedValue,
    },
};

fn converters() -> Converters {
    let avro = |is_key| Converter::Avro(AvroConverter::new(AvroOptions::default(), is_key));
    let value = Converter::BinaryData(Some(Box::new(avro(false))));
    Converters { key: avro(true), value, header: HeaderConverter::Of(avro(false)) }
}

fn record(topic: &str) -> TypedRecord {
    let number = Arc::new(Schema::new(Kind::Int32));
    let header =
        TypedValue { schema: Some(number), value: walpost_encode::connect::Value::Int32(1) };
    TypedRecord {
        topic: topic.into(),
        partition: None,
        key: TypedValue::text("k".into()),
        value: TypedValue::text("v".into()),
        headers: [TypedHeader { name: "h".into(), value: header }].into_iter().collect(),
        timestamp_ms: None,
    }
}

fn asked(converters: &mut Converters, record: &TypedRecord) -> (Part, UnknownSchema) {
    match converters.convert(record) {
        Err(Unencoded::Ask { part, schema }) => (part, *schema),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_record_is_kept_while_the_registry_is_asked_part_by_part() {
    let mut converters = converters();
    let record = record("t");
    let expected = [
        (Part::Key, "t-key", 1),
        (Part::Value, "t-value", 2),
        (Part::Header("h".into()), "t-value", 3),
    ];
    for (part, subject, id) in expected {
        let question = asked(&mut converters, &record);
        assert_eq!((&question.0, &*question.1.subject), (&part, subject));
        assert_eq!(asked(&mut converters, &record), question, "asked until it is answered");
        converters.learn(&question.0, &question.1, id);
    }
    let message = converters.convert(&record).unwrap();
    assert_eq!(message.key.as_deref(), Some(&[0, 0, 0, 0, 1, 2, b'k'][..]));
    assert_eq!(message.value.as_deref(), Some(&[0, 0, 0, 0, 2, 2, b'v'][..]));
    assert_eq!(message.headers[0].value.as_deref(), Some(&[0, 0, 0, 0, 3, 2][..]));
}

#[test]
fn each_topic_has_ids_of_its_own() {
    let mut converter = AvroConverter::new(AvroOptions::default(), false);
    let TypedValue { schema, value } = TypedValue::text("v".into());
    for topic in 0..2_000_u32 {
        let name = format!("t{topic}");
        let asked = match converter.convert(&name, schema.as_ref(), &value) {
            Err(walpost_encode::connect::Unconverted::Ask(asked)) => asked,
            other => panic!("{other:?}"),
        };
        converter.learn(&asked, topic);
        for _ in 0..2 {
            let bytes = converter.convert(&name, schema.as_ref(), &value).unwrap().unwrap();
            assert_eq!(bytes[1..5], topic.to_be_bytes());
        }
    }
}
