//! A value to Avro's binary form.
//!
//! The bytes of a datum hold no names, so that the schema they are written by
//! has names of its own: every record is inline, and a map is an array of pairs,
//! which has the same bytes and keeps its order.

use std::fmt::Write;

use apache_avro::{
    Schema as ApacheSchema, types::Value as Datum, writer::datum::GenericDatumWriter,
};

use super::schema::{is_avro_map, is_null_last};
use crate::{
    connect::{Kind, Schema, SchemaField, Value, date_number, decimal_scale, in_java_order},
    error::EncodeErrorKind,
};

/// What a value of one schema is written by.
#[derive(Debug)]
pub(crate) struct Layout(ApacheSchema);

impl Layout {
    pub(crate) fn of(schema: &Schema) -> Result<Self, EncodeErrorKind> {
        let mut text = String::with_capacity(256);
        write_layout(schema, &mut 0, &mut text);
        ApacheSchema::parse_str(&text).map(Self).map_err(|_| EncodeErrorKind::InvalidAvro)
    }

    /// The datum; of bytes that are required, the bytes alone, as Confluent's
    /// serializer has it.
    pub(crate) fn encode(
        &self,
        schema: &Schema,
        value: &Value,
    ) -> Result<Vec<u8>, EncodeErrorKind> {
        let datum = datum(schema, value)?;
        if let (Datum::Bytes(bytes), false) = (&datum, schema.optional) {
            return Ok(bytes.clone());
        }
        GenericDatumWriter::builder(&self.0)
            .build()
            .and_then(|writer| writer.write_value_to_vec(datum))
            .map_err(|_| EncodeErrorKind::InvalidAvro)
    }
}

fn write_layout(schema: &Schema, records: &mut usize, out: &mut String) {
    match (schema.optional, is_null_last(schema)) {
        (false, _) => write_base(schema, records, out),
        (true, true) => {
            out.push('[');
            write_base(schema, records, out);
            out.push_str(",\"null\"]");
        }
        (true, false) => {
            out.push_str("[\"null\",");
            write_base(schema, records, out);
            out.push(']');
        }
    }
}

fn write_base(schema: &Schema, records: &mut usize, out: &mut String) {
    let name = match &schema.kind {
        Kind::Int8 | Kind::Int16 | Kind::Int32 => "int",
        Kind::Int64 => "long",
        Kind::Float32 => "float",
        Kind::Float64 => "double",
        Kind::Boolean => "boolean",
        Kind::String => "string",
        Kind::Bytes => "bytes",
        Kind::Array(items) => {
            out.push_str("{\"type\":\"array\",\"items\":");
            write_layout(items, records, out);
            return out.push('}');
        }
        Kind::Map(key, value) => {
            out.push_str("{\"type\":\"array\",\"items\":");
            write_record([&**key, &**value], records, out);
            return out.push('}');
        }
        Kind::Struct(fields) => {
            return write_record(fields.iter().map(|field| &*field.schema), records, out);
        }
    };
    // Writing to a string does not fail.
    let _ = write!(out, "\"{name}\"");
}

fn write_record<'a>(
    fields: impl IntoIterator<Item = &'a Schema>,
    records: &mut usize,
    out: &mut String,
) {
    *records += 1;
    let _ = write!(out, "{{\"type\":\"record\",\"name\":\"r{records}\",\"fields\":[");
    for (index, field) in fields.into_iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let _ = write!(out, "{comma}{{\"name\":\"f{index}\",\"type\":");
        write_layout(field, records, out);
        out.push('}');
    }
    out.push_str("]}");
}

fn datum(schema: &Schema, value: &Value) -> Result<Datum, EncodeErrorKind> {
    let null_last = is_null_last(schema);
    match (value, schema.optional) {
        (Value::Null, false) => Err(EncodeErrorKind::RequiredValue),
        (Value::Null, true) => Ok(Datum::Union(u32::from(null_last), Box::new(Datum::Null))),
        (value, false) => base(schema, value),
        (value, true) => Ok(Datum::Union(u32::from(!null_last), Box::new(base(schema, value)?))),
    }
}

fn base(schema: &Schema, value: &Value) -> Result<Datum, EncodeErrorKind> {
    Ok(match value {
        Value::Null => Datum::Null,
        Value::Int8(number) => Datum::Int((*number).into()),
        Value::Int16(number) => Datum::Int((*number).into()),
        Value::Int32(number) => Datum::Int(*number),
        Value::Int64(number) => Datum::Long(*number),
        Value::Float32(number) => Datum::Float(*number),
        Value::Float64(number) => Datum::Double(*number),
        Value::Boolean(is_true) => Datum::Boolean(*is_true),
        Value::String(text) => Datum::String(text.clone()),
        Value::Bytes(bytes) => Datum::Bytes(bytes.to_vec()),
        Value::Decimal(decimal) => {
            if decimal_scale(Some(schema)) != Some(decimal.scale()) {
                return Err(EncodeErrorKind::DecimalScale);
            }
            Datum::Bytes(decimal.unscaled_bytes())
        }
        Value::Date(millis) => {
            let number = date_number(Some(schema), *millis)?;
            match schema.kind {
                Kind::Int32 => Datum::Int(number as i32),
                _ => Datum::Long(number),
            }
        }
        Value::Array(elements) => {
            let Kind::Array(items) = &schema.kind else {
                return Err(EncodeErrorKind::InvalidAvro);
            };
            let elements = elements.iter().map(|element| datum(items, element));
            Datum::Array(elements.collect::<Result<_, _>>()?)
        }
        Value::Map(entries) => {
            let Kind::Map(of_key, of_value) = &schema.kind else {
                return Err(EncodeErrorKind::InvalidAvro);
            };
            let pair = |(key, value): &(Value, Value)| {
                Ok(record([datum(of_key, key)?, datum(of_value, value)?]))
            };
            if is_avro_map(of_key) {
                Datum::Array(
                    in_java_order(entries).into_iter().map(pair).collect::<Result<_, _>>()?,
                )
            } else {
                Datum::Array(entries.iter().map(pair).collect::<Result<_, _>>()?)
            }
        }
        Value::Struct(values) => {
            let Kind::Struct(fields) = &schema.kind else {
                return Err(EncodeErrorKind::InvalidAvro);
            };
            let field = |(field, value): (&SchemaField, &Value)| {
                // A default stands for NULL.
                let default = field.schema.default.as_ref().filter(|_| *value == Value::Null);
                datum(&field.schema, default.unwrap_or(value))
            };
            record(fields.iter().zip(values).map(field).collect::<Result<Vec<_>, _>>()?)
        }
    })
}

fn record(values: impl IntoIterator<Item = Datum>) -> Datum {
    let field = |(index, value)| (format!("f{index}"), value);
    Datum::Record(values.into_iter().enumerate().map(field).collect())
}
