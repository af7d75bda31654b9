//! Values, read back by the schema that was registered for them.

use std::sync::Arc;

use apache_avro::{
    Schema as ApacheSchema, reader::datum::GenericDatumReader, types::Value as Datum,
};
use walpost_encode::{
    EncodeErrorKind,
    avro::{AvroConverter, AvroOptions},
    connect::{Decimal, Kind, Schema, SchemaField, Unconverted, Value},
};

const ID: u32 = 0x0102_0304;

/// The bytes behind the id, and the schema's text.
fn encode(schema: &Arc<Schema>, value: &Value) -> (Vec<u8>, String) {
    let mut converter = AvroConverter::new(AvroOptions::default(), false);
    let Err(Unconverted::Ask(asked)) = converter.convert("t", Some(schema), value) else {
        panic!("an id is missing")
    };
    converter.learn(&asked, ID);
    let bytes = converter.convert("t", Some(schema), value).unwrap().unwrap();
    assert_eq!(bytes[..5], [0, 1, 2, 3, 4]);
    (bytes[5..].to_vec(), asked.schema.to_string())
}

fn read(schema: &Arc<Schema>, value: &Value) -> Datum {
    let (bytes, text) = encode(schema, value);
    let avro = ApacheSchema::parse_str(&text).unwrap();
    let mut rest = bytes.as_slice();
    let datum = GenericDatumReader::builder(&avro).build().unwrap().read_value(&mut rest).unwrap();
    assert!(rest.is_empty(), "{} bytes are left", rest.len());
    datum
}

fn field(name: &str, schema: Schema) -> SchemaField {
    SchemaField { name: name.into(), schema: schema.into() }
}

#[test]
fn a_record_is_read_back_by_the_schema_that_is_registered() {
    let text = || Schema::new(Kind::String);
    let map = Kind::Map(text().into(), text().optional().into());
    let schema = Arc::new(Schema {
        name: Some("a.Value".into()),
        ..Schema::new(Kind::Struct(vec![
            field("s", text().optional()),
            field(
                "n",
                Schema { default: Some(Value::Int32(7)), ..Schema::new(Kind::Int32).optional() },
            ),
            field("list", Schema::array(Schema::new(Kind::Int64).optional())),
            field("map", Schema::new(map)),
            field("f", Schema::new(Kind::Float32)),
        ]))
    });
    let string = |text: &str| Value::String(text.into());
    let value = Value::Struct(vec![
        Value::Null,
        Value::Null,
        Value::Array(vec![Value::Int64(-1), Value::Null]),
        Value::Map(vec![(string("k"), string("v")), (string("z"), Value::Null)]),
        Value::Float32(1.5),
    ]);
    let Datum::Record(fields) = read(&schema, &value) else { panic!("a record") };
    let union = |at, value| Datum::Union(at, Box::new(value));
    assert_eq!(fields[0].1, union(0, Datum::Null));
    // A default stands for NULL.
    assert_eq!(fields[1].1, union(0, Datum::Int(7)));
    assert_eq!(fields[2].1, Datum::Array(vec![union(1, Datum::Long(-1)), union(0, Datum::Null)]));
    let Datum::Map(map) = &fields[3].1 else { panic!("a map") };
    assert_eq!(map["k"], union(1, Datum::String("v".to_owned())));
    assert_eq!(map["z"], union(0, Datum::Null));
    assert_eq!(fields[4].1, Datum::Float(1.5));
}

#[test]
fn a_map_is_in_the_order_of_java() {
    let text = || Arc::new(Schema::new(Kind::String));
    let schema = Arc::new(Schema::new(Kind::Map(text(), text())));
    let entry = |key: &str| (Value::String(key.into()), Value::String("".into()));
    let (bytes, _) = encode(&schema, &Value::Map(vec![entry("b"), entry("a")]));
    assert_eq!(bytes, [4, 2, b'a', 0, 2, b'b', 0, 0]);
}

#[test]
fn bytes_that_are_required_have_no_length() {
    let value = Value::Bytes(vec![7, 8, 9].into());
    let required = Arc::new(Schema::new(Kind::Bytes));
    assert_eq!(encode(&required, &value).0, [7, 8, 9]);
    let optional = Arc::new(Schema::new(Kind::Bytes).optional());
    assert_eq!(encode(&optional, &value).0, [2, 6, 7, 8, 9]);
}

#[test]
fn a_decimal_is_its_integer() {
    let schema = Arc::new(
        Schema::logical(Kind::Bytes, "org.apache.kafka.connect.data.Decimal", 1)
            .parameter("scale", "2")
            .optional(),
    );
    let value = |text| Value::Decimal(Decimal::parse(text).unwrap());
    assert_eq!(encode(&schema, &value("12.30")).0, [2, 4, 0x04, 0xce]);
    let mut converter = AvroConverter::new(AvroOptions::default(), false);
    let Err(Unconverted::Ask(asked)) = converter.convert("t", Some(&schema), &value("1.0")) else {
        panic!("an id is missing")
    };
    converter.learn(&asked, ID);
    let refused = converter.convert("t", Some(&schema), &value("1.0"));
    assert_eq!(refused, Err(EncodeErrorKind::DecimalScale.into()));
}

#[test]
fn null_is_a_tombstone_where_the_schema_has_it() {
    let mut converter = AvroConverter::new(AvroOptions::default(), false);
    let optional = Arc::new(Schema::new(Kind::String).optional());
    assert_eq!(converter.convert("t", Some(&optional), &Value::Null), Ok(None));
    assert_eq!(converter.convert("t", None, &Value::Null), Ok(None));
    let required = Arc::new(Schema::new(Kind::String));
    let refused = converter.convert("t", Some(&required), &Value::Null);
    assert_eq!(refused, Err(EncodeErrorKind::RequiredValue.into()));
    let text = Value::String("[]".into());
    assert_eq!(converter.convert("t", None, &text), Err(EncodeErrorKind::NoSchema.into()));
}
