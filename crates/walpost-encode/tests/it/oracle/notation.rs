//! Schemas and values as the oracle reads them.

use serde_json::{Value as Json, json};
use walpost_encode::connect::{Kind, Schema, Value};

pub(crate) fn schema(schema: &Schema) -> Json {
    let mut json = json!({ "type": schema.kind.json_name(), "optional": schema.optional });
    match &schema.kind {
        Kind::Array(element) => json["items"] = self::schema(element),
        Kind::Map(key, value) => {
            json["keys"] = self::schema(key);
            json["values"] = self::schema(value);
        }
        Kind::Struct(fields) => {
            let field = |field: &walpost_encode::connect::SchemaField| {
                let mut json = self::schema(&field.schema);
                json["field"] = (&*field.name).into();
                json
            };
            json["fields"] = fields.iter().map(field).collect();
        }
        _ => {}
    }
    if let Some(name) = &schema.name {
        json["name"] = (&**name).into();
    }
    if let Some(version) = schema.version {
        json["version"] = version.into();
    }
    if let Some(doc) = &schema.doc {
        json["doc"] = (&**doc).into();
    }
    for (name, value) in &schema.parameters {
        json["parameters"][&**name] = (&**value).into();
    }
    if let Some(default) = &schema.default {
        json["default"] = value(default);
    }
    json
}

pub(crate) fn value(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Int8(number) => number.to_string().into(),
        Value::Int16(number) => number.to_string().into(),
        Value::Int32(number) => number.to_string().into(),
        Value::Int64(number) | Value::Date(number) => number.to_string().into(),
        Value::Float32(number) => format!("{:08x}", number.to_bits()).into(),
        Value::Float64(number) => format!("{:016x}", number.to_bits()).into(),
        Value::Boolean(is_true) => (*is_true).into(),
        Value::String(text) => (**text).into(),
        Value::Bytes(bytes) => {
            Json::String(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
        }
        Value::Decimal(decimal) => decimal.plain().into(),
        Value::Array(elements) => elements.iter().map(self::value).collect(),
        Value::Map(entries) => entries
            .iter()
            .map(|(key, value)| json!([self::value(key), self::value(value)]))
            .collect(),
        Value::Struct(values) => values.iter().map(self::value).collect(),
    }
}
