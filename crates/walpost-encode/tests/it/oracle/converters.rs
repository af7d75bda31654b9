//! Values through converters.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use walpost_encode::{
    EncodeErrorKind,
    connect::{
        Converter, DecimalFormat, HeaderConverter, JsonConverter, JsonConverterOptions, Kind,
        Schema, Value,
    },
};

use super::{
    ask::{Oracle, Verdict},
    notation,
    random::Random,
};

const CASES: usize = 400;

/// A converter here and there.
pub(crate) struct Way {
    pub(crate) ours: HeaderConverter,
    pub(crate) theirs: Json,
}

pub(crate) fn json_options(
    schemas: bool,
    numeric: bool,
    replace: bool,
) -> (JsonConverterOptions, Json) {
    let decimal_format = if numeric { DecimalFormat::Numeric } else { DecimalFormat::Base64 };
    let options = JsonConverterOptions {
        schemas,
        decimal_format,
        replace_null_with_default: replace,
        ..JsonConverterOptions::default()
    };
    let config = json!({
        "schemas.enable": schemas.to_string(),
        "decimal.format": if numeric { "NUMERIC" } else { "BASE64" },
        "replace.null.with.default": replace.to_string(),
    });
    (options, config)
}

fn ways() -> Vec<Way> {
    let mut ways = Vec::new();
    let mut add = |ours: Converter, class: &str, config: Json, header: bool| {
        let theirs = json!({ "class": class, "config": config, "header": header });
        ways.push(Way { ours: HeaderConverter::Of(ours), theirs });
    };
    let json_class = "org.apache.kafka.connect.json.JsonConverter";
    for bits in 0..8 {
        let (options, config) = json_options(bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
        let converter = || Converter::Json(JsonConverter::new(options));
        add(converter(), json_class, config.clone(), false);
        add(converter(), json_class, config, true);
    }
    add(Converter::String, "org.apache.kafka.connect.storage.StringConverter", json!({}), false);
    add(Converter::String, "org.apache.kafka.connect.storage.StringConverter", json!({}), true);
    let bytes = "org.apache.kafka.connect.converters.ByteArrayConverter";
    add(Converter::ByteArray, bytes, json!({}), false);
    let binary = "io.debezium.converters.BinaryDataConverter";
    add(Converter::BinaryData(None), binary, json!({}), false);
    let (options, _) = json_options(false, false, true);
    let delegate = Converter::Json(JsonConverter::new(options));
    let config = json!({
        "delegate.converter.type": json_class,
        "delegate.converter.type.schemas.enable": "false",
    });
    add(Converter::BinaryData(Some(Box::new(delegate))), binary, config, false);
    let simple = "org.apache.kafka.connect.storage.SimpleHeaderConverter";
    ways.push(Way {
        ours: HeaderConverter::Simple,
        theirs: json!({ "class": simple, "config": {}, "header": true }),
    });
    ways
}

fn compare(oracle: &mut Oracle, way: &mut Way, schema: Option<&Arc<Schema>>, value: &Value) {
    let ours = way.ours.convert("topic", schema, value);
    // Debezium writes the name of a Java object instead, or the time zone.
    if ours == Err(EncodeErrorKind::NoText.into()) {
        return;
    }
    let question = json!({
        "op": "convert",
        "converter": way.theirs,
        "schema": schema.map_or(Json::Null, |schema| notation::schema(schema)),
        "value": notation::value(value),
    });
    let (ours, theirs) = (Verdict::of_ours(ours), Verdict::of(&oracle.ask(&question)));
    let is_same = match (&ours, &theirs) {
        (Verdict::Failed(_), Verdict::Failed(_)) => true,
        (ours, theirs) => ours == theirs,
    };
    assert!(is_same, "{question}\nours:   {}\ntheirs: {}", ours.text(), theirs.text());
}

#[test]
#[ignore = "deep: needs a Java compiler and Kafka Connect"]
fn values_are_converted_as_kafka_connect_does() {
    let mut oracle = Oracle::start();
    let mut ways = ways();
    let mut random = Random::new("values");
    for _ in 0..CASES {
        let schema = Arc::new(random.schema(2));
        let value = random.value(&schema);
        for way in &mut ways {
            compare(&mut oracle, way, Some(&schema), &value);
        }
    }
}

#[test]
#[ignore = "deep: needs a Java compiler and Kafka Connect"]
fn what_has_no_schema_or_must_not_be_null_is_as_in_kafka_connect() {
    let mut oracle = Oracle::start();
    let text = Value::String("[]".into());
    let with_default = Schema { default: Some(Value::Int32(7)), ..Schema::new(Kind::Int32) };
    let cases = [
        (None, Value::Null),
        (None, text),
        (Some(Schema::new(Kind::String)), Value::Null),
        (Some(Schema::new(Kind::Bytes)), Value::Null),
        (Some(with_default.clone()), Value::Null),
        (Some(with_default.optional()), Value::Null),
        (
            Some(Schema::logical(Kind::Int32, "org.apache.kafka.connect.data.Time", 1)),
            Value::Date(86_400_000),
        ),
    ];
    for way in &mut ways() {
        for (schema, value) in &cases {
            let schema = schema.clone().map(Arc::new);
            compare(&mut oracle, way, schema.as_ref(), value);
        }
    }
}
