//! Kafka Connect's schema as a JSON Schema: with the keywords, and in the order,
//! in which Confluent's converter and the library below it write it. Where that
//! is the order of a hash table of Java, so is it here: a registry compares text.

use crate::{
    connect::{
        Decimal, DecimalFormat, JavaMap, Kind, Schema, SchemaField, Value, date_number,
        hash_of_text,
    },
    error::EncodeErrorKind,
    json::{write_base64, write_plain_string},
    number::{java_double, java_single},
    schema_ids::SchemaText,
};

use super::JsonSchemaOptions;

/// Parameters that are the converter's own.
const OWN_PARAMETERS: &str = "io.confluent.connect.json";

/// The schema as the registry gets it; its name is its title.
pub(super) fn derive(
    schema: &Schema,
    options: JsonSchemaOptions,
) -> Result<SchemaText, EncodeErrorKind> {
    let mut writer = Writer { options, out: Vec::with_capacity(256) };
    writer.schema(schema, None)?;
    let text = String::from_utf8(writer.out).expect("JSON of text is UTF-8");
    let name = schema.name().filter(|_| !schema.optional).map(str::to_owned);
    Ok(SchemaText { text: text.into(), name })
}

/// Whether a map with such keys is an object.
pub(super) fn is_object(key: &Schema) -> bool {
    key.kind == Kind::String && !key.optional
}

struct Writer {
    options: JsonSchemaOptions,
    out: Vec<u8>,
}

impl Writer {
    fn push(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn string(&mut self, text: &str) {
        write_plain_string(text, &mut self.out);
    }

    /// `index` is the place within a struct.
    fn schema(&mut self, schema: &Schema, index: Option<usize>) -> Result<(), EncodeErrorKind> {
        if !schema.optional {
            return self.required(schema, index);
        }
        self.push("{");
        if let Some(index) = index {
            self.push(&format!("\"connect.index\":{index},"));
        }
        self.push("\"oneOf\":[{\"type\":\"null\"},");
        self.required(schema, None)?;
        self.push("]}");
        Ok(())
    }

    fn required(&mut self, schema: &Schema, index: Option<usize>) -> Result<(), EncodeErrorKind> {
        let is_number = self.options.decimal_format == DecimalFormat::Numeric
            && schema.name() == Some("org.apache.kafka.connect.data.Decimal");
        let (name, connect_type) = match &schema.kind {
            Kind::Int8 => ("integer", Some("int8")),
            Kind::Int16 => ("integer", Some("int16")),
            Kind::Int32 => ("integer", Some("int32")),
            Kind::Int64 => ("integer", Some("int64")),
            Kind::Float32 => ("number", Some("float32")),
            Kind::Float64 => ("number", Some("float64")),
            Kind::Boolean => ("boolean", None),
            Kind::String => ("string", None),
            Kind::Bytes if is_number => ("number", Some("bytes")),
            Kind::Bytes => ("string", Some("bytes")),
            Kind::Array(_) => ("array", None),
            Kind::Map(key, _) if is_object(key) => ("object", Some("map")),
            Kind::Map(..) => ("array", Some("map")),
            Kind::Struct(_) => ("object", None),
        };
        self.push("{");
        let start = self.out.len();
        let is_boolean = schema.kind == Kind::Boolean;
        if !is_boolean {
            self.key(start, "type");
            self.string(name);
        }
        if matches!(schema.kind, Kind::Struct(_)) && !self.options.additional_properties {
            self.push(",\"additionalProperties\":false");
        }
        self.properties(start, schema, connect_type, index)?;
        if is_boolean {
            self.key(start, "type");
            self.string(name);
        }
        self.parts(start, schema)?;
        self.push("}");
        Ok(())
    }

    /// The key of a member of the object that starts there.
    fn key(&mut self, start: usize, name: &str) {
        if self.out.len() > start {
            self.push(",");
        }
        self.string(name);
        self.push(":");
    }

    fn properties(
        &mut self,
        start: usize,
        schema: &Schema,
        connect_type: Option<&str>,
        index: Option<usize>,
    ) -> Result<(), EncodeErrorKind> {
        if let Some(name) = &schema.name {
            self.key(start, "title");
            self.string(name);
        }
        if let Some(doc) = &schema.doc {
            self.key(start, "description");
            self.string(doc);
        }
        if let Some(default) = &schema.default {
            self.key(start, "default");
            self.default(schema, default)?;
        }
        let mut own: Vec<(&str, String)> = Vec::new();
        if let Some(connect_type) = connect_type {
            own.push(("connect.type", format!("\"{connect_type}\"")));
        }
        if let Some(version) = schema.version {
            own.push(("connect.version", version.to_string()));
        }
        if let Some(parameters) = parameters(schema) {
            own.push(("connect.parameters", parameters));
        }
        if let Some(index) = index {
            own.push(("connect.index", index.to_string()));
        }
        // Java copies the table, into one of the size that it needs.
        let needed = own.len() * 4 / 3 + 1;
        for (name, text) in ordered(ordered(own.into_iter(), 16), needed) {
            self.key(start, name);
            self.push(&text);
        }
        Ok(())
    }

    /// What arrays, maps and structs are made of.
    fn parts(&mut self, start: usize, schema: &Schema) -> Result<(), EncodeErrorKind> {
        match &schema.kind {
            Kind::Array(items) => {
                self.key(start, "items");
                self.schema(items, None)
            }
            Kind::Map(key, value) if is_object(key) => {
                self.key(start, "additionalProperties");
                self.schema(value, None)
            }
            Kind::Map(key, value) => {
                self.key(start, "items");
                self.push("{\"type\":\"object\",\"properties\":{\"value\":");
                self.schema(value, Some(1))?;
                self.push(",\"key\":");
                self.schema(key, Some(0))?;
                self.push("}}");
                Ok(())
            }
            Kind::Struct(fields) if !fields.is_empty() => {
                self.key(start, "properties");
                self.push("{");
                let start = self.out.len();
                let places =
                    fields.iter().enumerate().map(|(at, field)| (&*field.name, (at, field)));
                let places: Vec<(&str, (usize, &SchemaField))> = ordered(places, 16).collect();
                for (name, (at, field)) in places {
                    self.key(start, name);
                    self.schema(&field.schema, Some(at))?;
                }
                self.push("}");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn default(&mut self, schema: &Schema, value: &Value) -> Result<(), EncodeErrorKind> {
        match value {
            Value::Int8(number) => self.push(&number.to_string()),
            Value::Int16(number) => self.push(&number.to_string()),
            Value::Int32(number) => self.push(&number.to_string()),
            Value::Int64(number) => self.push(&number.to_string()),
            Value::Date(millis) => self.push(&date_number(Some(schema), *millis)?.to_string()),
            Value::Float32(number) if number.is_finite() => self.number(&java_single(*number))?,
            Value::Float64(number) if number.is_finite() => self.number(&java_double(*number))?,
            Value::Boolean(is_true) => self.push(if *is_true { "true" } else { "false" }),
            Value::String(text) => self.string(text),
            Value::Bytes(bytes) => write_base64(bytes, &mut self.out),
            Value::Decimal(decimal) => match self.options.decimal_format {
                DecimalFormat::Base64 => write_base64(&decimal.unscaled_bytes(), &mut self.out),
                DecimalFormat::Numeric => self.number(&decimal.java())?,
            },
            Value::Array(elements) => {
                let items = schema.element().ok_or(EncodeErrorKind::InvalidJsonSchema)?;
                self.push("[");
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        self.push(",");
                    }
                    // A default stands for NULL.
                    let default = items
                        .default
                        .as_ref()
                        .filter(|_| *element == Value::Null && !self.options.ignore_default);
                    self.default(items, default.unwrap_or(element))?;
                }
                self.push("]");
            }
            Value::Null => self.push("null"),
            // Numbers that are none; Debezium has no defaults of maps and structs.
            Value::Float32(_) | Value::Float64(_) | Value::Map(_) | Value::Struct(_) => {
                return Err(EncodeErrorKind::InvalidJsonSchema);
            }
        }
        Ok(())
    }

    /// A number that is written without zeros at its end, then read as decimal
    /// and written again.
    fn number(&mut self, text: &str) -> Result<(), EncodeErrorKind> {
        let none = EncodeErrorKind::InvalidJsonSchema;
        let Some((mantissa, exponent)) = text.split_once('E') else {
            let short = match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.'),
                false => text,
            };
            self.push(if short == "-0" { "0" } else { short });
            return Ok(());
        };
        let exponent: i32 = exponent.trim_start_matches('+').parse().map_err(|_| none.clone())?;
        let decimal = Decimal::parse(mantissa).ok_or(none)?.shifted(exponent);
        self.push(&decimal.java());
        Ok(())
    }
}

/// The members of an object of those parameters that are not the converter's.
fn parameters(schema: &Schema) -> Option<String> {
    let known = schema.parameters.iter().filter(|(name, _)| !name.starts_with(OWN_PARAMETERS));
    let known: Vec<(&str, &str)> = known.map(|(name, value)| (&**name, &**value)).collect();
    if known.is_empty() {
        return None;
    }
    let count = known.len();
    let mut out = Vec::new();
    for (name, value) in ordered(ordered(known.into_iter(), 16), count) {
        out.push(if out.is_empty() { b'{' } else { b',' });
        write_plain_string(name, &mut out);
        out.push(b':');
        write_plain_string(value, &mut out);
    }
    out.push(b'}');
    Some(String::from_utf8(out).expect("JSON of text is UTF-8"))
}

/// In the order of Java's `HashMap` of that capacity.
fn ordered<'a, V>(
    entries: impl Iterator<Item = (&'a str, V)>,
    capacity: usize,
) -> impl Iterator<Item = (&'a str, V)> {
    let mut map = JavaMap::with_capacity(capacity);
    for (name, value) in entries {
        map.insert(hash_of_text(name), name, value);
    }
    map.into_entries()
}
