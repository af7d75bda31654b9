use std::sync::Arc;

use bytes::Bytes;

use super::{
    schema::{Kind, Schema, SchemaField},
    temporal::MILLIS_PER_DAY,
    value::Value,
};
use crate::{
    error::EncodeErrorKind,
    json::{write_base64, write_list, write_object, write_string},
    memory::Memory,
    number::{java_double, java_single},
};

/// Options of Kafka Connect's `JsonConverter`. The default is Kafka Connect's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonConverterOptions {
    /// `schemas.enable`: an object of schema and payload instead of the payload
    /// alone.
    pub schemas: bool,
    /// `schemas.cache.size`: how many schemas are remembered as text, in each
    /// converter.
    pub schemas_cache_size: usize,
    /// `decimal.format`: how decimal numbers appear.
    pub decimal_format: DecimalFormat,
    /// `replace.null.with.default`: a default stands for NULL.
    pub replace_null_with_default: bool,
}

impl Default for JsonConverterOptions {
    fn default() -> Self {
        Self {
            schemas: true,
            schemas_cache_size: 1_000,
            decimal_format: DecimalFormat::default(),
            replace_null_with_default: true,
        }
    }
}

/// `decimal.format`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecimalFormat {
    /// `BASE64`: the integer's bytes in base64.
    #[default]
    Base64,
    /// `NUMERIC`: a number.
    Numeric,
}

/// Kafka Connect's `JsonConverter`, byte for byte.
#[derive(Clone, Debug)]
pub struct JsonConverter {
    options: JsonConverterOptions,
    /// By the address of the schema, which is kept with its text.
    texts: Memory<usize, (Arc<Schema>, Bytes)>,
}

impl Default for JsonConverter {
    fn default() -> Self {
        Self::new(JsonConverterOptions::default())
    }
}

/// Bytes of schemas and their texts that are remembered.
const MAX_TEXTS_BYTES: usize = 16 << 20;

impl JsonConverter {
    /// A converter that has seen nothing.
    pub fn new(options: JsonConverterOptions) -> Self {
        Self { options, texts: Memory::new(options.schemas_cache_size, MAX_TEXTS_BYTES) }
    }

    /// The bytes of a value; `None` for no value of no schema, a tombstone.
    ///
    /// # Errors
    /// For NULL where the schema has none, and for the values that Kafka Connect
    /// refuses to write: a decimal of another scale than its schema's, and a
    /// `Time` that is not within a day.
    pub fn convert(
        &mut self,
        schema: Option<&Arc<Schema>>,
        value: &Value,
    ) -> Result<Option<Bytes>, EncodeErrorKind> {
        if schema.is_none() && *value == Value::Null {
            return Ok(None);
        }
        let text = match schema {
            _ if !self.options.schemas => Bytes::new(),
            Some(schema) => self.schema_text(schema)?,
            None => Bytes::from_static(b"null"),
        };
        let size = 32 + text.len() + size_hint(schema.map(|schema| &**schema), value);
        let mut out = Vec::with_capacity(size);
        if self.options.schemas {
            out.extend_from_slice(b"{\"schema\":");
            out.extend_from_slice(&text);
            out.extend_from_slice(b",\"payload\":");
        }
        write(schema.map(|schema| &**schema), value, self.options, &mut out)?;
        if self.options.schemas {
            out.push(b'}');
        }
        Ok(Some(out.into()))
    }

    fn schema_text(&mut self, schema: &Arc<Schema>) -> Result<Bytes, EncodeErrorKind> {
        let address = Arc::as_ptr(schema).addr();
        if let Some((_, text)) = self.texts.get(&address) {
            return Ok(text.clone());
        }
        let mut out = Vec::with_capacity(256);
        write_schema(schema, None, self.options, &mut out)?;
        let text = Bytes::from(out);
        let bytes = schema.size_bytes() + text.len();
        self.texts.insert(address, (Arc::clone(schema), text.clone()), bytes);
        Ok(text)
    }
}

/// Bytes that a value takes, as a guess: some of its text is escaped.
fn size_hint(schema: Option<&Schema>, value: &Value) -> usize {
    match value {
        Value::String(text) => text.as_bytes().len() / 4 * 5 + 8,
        Value::Bytes(bytes) => bytes.len() / 3 * 4 + 8,
        Value::Array(elements) => {
            let of_element = schema.and_then(Schema::element);
            elements.iter().map(|element| 1 + size_hint(of_element, element)).sum()
        }
        Value::Struct(values) => {
            let fields = match schema.map(|schema| &schema.kind) {
                Some(Kind::Struct(fields)) => fields.as_slice(),
                _ => &[],
            };
            let field = |(field, value): (&SchemaField, &Value)| {
                field.name.len() + 4 + size_hint(Some(&field.schema), value)
            };
            fields.iter().zip(values).map(field).sum()
        }
        _ => 12,
    }
}

/// `field` is the name of the struct's field that has this schema.
fn write_schema(
    schema: &Schema,
    field: Option<&str>,
    options: JsonConverterOptions,
    out: &mut Vec<u8>,
) -> Result<(), EncodeErrorKind> {
    out.extend_from_slice(b"{\"type\":");
    write_string(schema.kind.json_name(), out);
    match &schema.kind {
        Kind::Array(element) => {
            out.extend_from_slice(b",\"items\":");
            write_schema(element, None, options, out)?;
        }
        Kind::Map(key, value) => {
            out.extend_from_slice(b",\"keys\":");
            write_schema(key, None, options, out)?;
            out.extend_from_slice(b",\"values\":");
            write_schema(value, None, options, out)?;
        }
        Kind::Struct(fields) => {
            out.extend_from_slice(b",\"fields\":[");
            for (index, field) in fields.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_schema(&field.schema, Some(&field.name), options, out)?;
            }
            out.push(b']');
        }
        _ => {}
    }
    let optional: &[u8] =
        if schema.optional { b",\"optional\":true" } else { b",\"optional\":false" };
    out.extend_from_slice(optional);
    write_properties(schema, options, out)?;
    if let Some(field) = field {
        out.extend_from_slice(b",\"field\":");
        write_string(field, out);
    }
    out.push(b'}');
    Ok(())
}

fn write_properties(
    schema: &Schema,
    options: JsonConverterOptions,
    out: &mut Vec<u8>,
) -> Result<(), EncodeErrorKind> {
    if let Some(name) = &schema.name {
        out.extend_from_slice(b",\"name\":");
        write_string(name, out);
    }
    if let Some(version) = schema.version {
        out.extend_from_slice(format!(",\"version\":{version}").as_bytes());
    }
    if let Some(doc) = &schema.doc {
        out.extend_from_slice(b",\"doc\":");
        write_string(doc, out);
    }
    for (index, (name, value)) in schema.parameters.iter().enumerate() {
        let start: &[u8] = if index == 0 { b",\"parameters\":{" } else { b"," };
        out.extend_from_slice(start);
        write_string(name, out);
        out.push(b':');
        write_string(value, out);
    }
    if !schema.parameters.is_empty() {
        out.push(b'}');
    }
    if let Some(default) = &schema.default {
        out.extend_from_slice(b",\"default\":");
        write(Some(schema), default, options, out)?;
    }
    Ok(())
}

fn write(
    schema: Option<&Schema>,
    value: &Value,
    options: JsonConverterOptions,
    out: &mut Vec<u8>,
) -> Result<(), EncodeErrorKind> {
    match value {
        Value::Null => return write_null(schema, options, out),
        Value::Int8(number) => write_integer((*number).into(), out),
        Value::Int16(number) => write_integer((*number).into(), out),
        Value::Int32(number) => write_integer((*number).into(), out),
        Value::Int64(number) => write_integer(*number, out),
        Value::Float32(number) if number.is_finite() => {
            out.extend_from_slice(java_single(*number).as_bytes());
        }
        Value::Float32(number) => write_string(&java_single(*number), out),
        Value::Float64(number) if number.is_finite() => {
            out.extend_from_slice(java_double(*number).as_bytes());
        }
        Value::Float64(number) => write_string(&java_double(*number), out),
        Value::Boolean(is_true) => {
            out.extend_from_slice(if *is_true { b"true" } else { b"false" });
        }
        Value::String(text) => write_string(text, out),
        Value::Bytes(bytes) => write_base64(bytes, out),
        Value::Decimal(decimal) => {
            if decimal_scale(schema) != Some(decimal.scale()) {
                return Err(EncodeErrorKind::DecimalScale);
            }
            match options.decimal_format {
                DecimalFormat::Base64 => write_base64(&decimal.unscaled_bytes(), out),
                DecimalFormat::Numeric => out.extend_from_slice(decimal.java().as_bytes()),
            }
        }
        Value::Date(millis) => write_integer(date_number(schema, *millis)?, out),
        Value::Array(elements) => {
            let of_element = schema.and_then(Schema::element);
            write_list(elements, out, |element, out| write(of_element, element, options, out))?;
        }
        Value::Map(entries) => write_map(schema, entries, options, out)?,
        Value::Struct(values) => write_struct(schema, values, options, out)?,
    }
    Ok(())
}

fn write_integer(number: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(number.to_string().as_bytes());
}

fn write_null(
    schema: Option<&Schema>,
    options: JsonConverterOptions,
    out: &mut Vec<u8>,
) -> Result<(), EncodeErrorKind> {
    match schema {
        Some(Schema { default: Some(default), .. }) if options.replace_null_with_default => {
            return write(schema, default, options, out);
        }
        Some(Schema { optional: false, .. }) => return Err(EncodeErrorKind::RequiredValue),
        _ => out.extend_from_slice(b"null"),
    }
    Ok(())
}

/// The scale that a schema of decimals has.
pub(crate) fn decimal_scale(schema: Option<&Schema>) -> Option<i32> {
    let parameter = schema?.parameters.iter().find(|(name, _)| &**name == "scale")?;
    parameter.1.parse().ok()
}

/// The number that stands for milliseconds of Kafka Connect's own types.
pub(crate) fn date_number(schema: Option<&Schema>, millis: i64) -> Result<i64, EncodeErrorKind> {
    match schema.and_then(Schema::name) {
        Some("org.apache.kafka.connect.data.Date") => Ok(millis / MILLIS_PER_DAY),
        Some("org.apache.kafka.connect.data.Time") if !(0..=MILLIS_PER_DAY).contains(&millis) => {
            Err(EncodeErrorKind::TimeOfDay)
        }
        _ => Ok(millis),
    }
}

/// An object where keys are text, else a list of pairs.
fn write_map(
    schema: Option<&Schema>,
    entries: &[(Value, Value)],
    options: JsonConverterOptions,
    out: &mut Vec<u8>,
) -> Result<(), EncodeErrorKind> {
    let (of_key, of_value) = schema.and_then(Schema::entry).unzip();
    if of_key.is_some_and(|key| key.kind != Kind::String) {
        return write_list(entries, out, |(key, value), out| {
            out.push(b'[');
            write(of_key, key, options, out)?;
            out.push(b',');
            write(of_value, value, options, out)?;
            out.push(b']');
            Ok(())
        });
    }
    write_object(entries, out, |(key, value), out| {
        write(of_key, key, options, out)?;
        out.push(b':');
        write(of_value, value, options, out)
    })
}

fn write_struct(
    schema: Option<&Schema>,
    values: &[Value],
    options: JsonConverterOptions,
    out: &mut Vec<u8>,
) -> Result<(), EncodeErrorKind> {
    let Some(Schema { kind: Kind::Struct(fields), .. }) = schema else {
        return Err(EncodeErrorKind::RequiredValue);
    };
    out.push(b'{');
    for (index, (field, value)) in fields.iter().zip(values).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(&field.name, out);
        out.push(b':');
        write(Some(&field.schema), value, options, out)?;
    }
    out.push(b'}');
    Ok(())
}
