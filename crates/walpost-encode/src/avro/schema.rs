//! Kafka Connect's schema to Avro's, as text: with the properties, and in the
//! order, in which Confluent's converter and Avro's Java library write it, which
//! `tests/it/confluent` compares with what the converter itself has written.

use std::collections::HashMap;

use apache_avro::Schema as ApacheSchema;

use super::AvroOptions;
use crate::{
    connect::{Kind, MILLIS_PER_DAY, Schema, Value},
    error::EncodeErrorKind,
    json::write_plain_string,
    number::{java_double, java_single},
    schema_ids::SchemaText,
};

const NAMESPACE: &str = "io.confluent.connect.avro";
const DEFAULT_NAME: &str = "ConnectDefault";
const MAP_ENTRY: &str = "MapEntry";

/// The precision that a decimal has whose schema names none.
const DEFAULT_PRECISION: i64 = 64;

/// The schema as the registry gets it; its name is the full one, if it is a
/// record.
pub(crate) fn derive(
    schema: &Schema,
    options: &AvroOptions,
) -> Result<SchemaText, EncodeErrorKind> {
    let mut writer = Writer {
        options,
        out: Vec::with_capacity(256),
        first: None,
        known: HashMap::new(),
        defaults: Vec::new(),
        namespace: None,
        unnamed: 0,
    };
    writer.schema(schema)?;
    let text = String::from_utf8(writer.out).expect("JSON of text is UTF-8");
    ApacheSchema::parse_str(&text).map_err(|_| EncodeErrorKind::InvalidAvro)?;
    let name = match (&schema.kind, schema.optional) {
        (Kind::Struct(_), false) => writer.first,
        _ => None,
    };
    Ok(SchemaText { text: text.into(), name })
}

struct Writer<'a> {
    options: &'a AvroOptions,
    out: Vec<u8>,
    /// Full names of the records so far, with what they are.
    known: HashMap<String, Vec<&'a Schema>>,
    /// Those without a name of their own, with that which they have got.
    defaults: Vec<(String, &'a Schema)>,
    /// Full name of the first record.
    first: Option<String>,
    /// Of the record that is being written.
    namespace: Option<String>,
    /// Records so far without a name.
    unnamed: usize,
}

impl<'a> Writer<'a> {
    fn push(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn string(&mut self, text: &str) {
        write_plain_string(text, &mut self.out);
    }

    /// NULL is first, but beside a default, which is of the first.
    fn schema(&mut self, schema: &'a Schema) -> Result<(), EncodeErrorKind> {
        if !schema.optional {
            return self.base(schema);
        }
        if is_null_last(schema) {
            self.push("[");
            self.base(schema)?;
            self.push(",\"null\"]");
        } else {
            self.push("[\"null\",");
            self.base(schema)?;
            self.push("]");
        }
        Ok(())
    }

    fn base(&mut self, schema: &'a Schema) -> Result<(), EncodeErrorKind> {
        let (name, connect_type) = match &schema.kind {
            Kind::Int8 => ("int", Some("int8")),
            Kind::Int16 => ("int", Some("int16")),
            Kind::Int32 => ("int", None),
            Kind::Int64 => ("long", None),
            Kind::Float32 => ("float", None),
            Kind::Float64 => ("double", None),
            Kind::Boolean => ("boolean", None),
            Kind::String => ("string", None),
            Kind::Bytes => ("bytes", None),
            Kind::Array(items) => {
                self.push("{\"type\":\"array\",\"items\":");
                self.schema(items)?;
                return self.finish(schema, None);
            }
            Kind::Map(key, value) if is_avro_map(key) => {
                self.push("{\"type\":\"map\",\"values\":");
                self.schema(value)?;
                return self.finish(schema, None);
            }
            Kind::Map(key, value) => {
                self.push("{\"type\":\"array\",\"items\":");
                self.map_entry(schema, key, value)?;
                return self.finish(schema, None);
            }
            Kind::Struct(_) => return self.record(schema),
        };
        let start = self.out.len();
        self.push("{\"type\":");
        self.string(name);
        let bare = self.out.len();
        self.finish(schema, connect_type)?;
        if self.out.len() == bare + 1 {
            // A type without properties is its name alone.
            self.out.truncate(start);
            self.string(name);
        }
        Ok(())
    }

    fn record(&mut self, schema: &'a Schema) -> Result<(), EncodeErrorKind> {
        let Kind::Struct(fields) = &schema.kind else {
            return Err(EncodeErrorKind::InvalidAvro);
        };
        let (namespace, name) = match self.known_default(schema) {
            Some(name) => (Some(NAMESPACE.to_owned()), name),
            None => self.name(schema),
        };
        let full = full_name(namespace.as_deref(), &name);
        if self.is_known(&full, |of| is_alike(of, schema)) {
            let is_near = namespace == self.namespace;
            self.string(if is_near { &name } else { &full });
            return Ok(());
        }
        if schema.name.is_none() {
            self.defaults.push((name.clone(), schema));
        }
        self.remember(full, schema);
        self.push("{\"type\":\"record\",\"name\":");
        self.string(&name);
        let outer = self.open_namespace(namespace);
        self.push(",\"fields\":[");
        for (index, field) in fields.iter().enumerate() {
            if index > 0 {
                self.push(",");
            }
            self.field(&scrubbed(&field.name, self.options), &field.schema)?;
        }
        self.push("]");
        self.namespace = outer;
        self.finish(schema, None)
    }

    fn is_known(&self, full: &str, is_same: impl Fn(&Schema) -> bool) -> bool {
        self.known.get(full).is_some_and(|known| known.iter().any(|of| is_same(of)))
    }

    fn remember(&mut self, full: String, schema: &'a Schema) {
        self.first.get_or_insert_with(|| full.clone());
        self.known.entry(full).or_default().push(schema);
    }

    /// The name that a record without one has got before, if there is one like
    /// it.
    fn known_default(&self, schema: &Schema) -> Option<String> {
        let is_same = |(_, of): &&(String, &Schema)| schema.name.is_none() && is_alike(of, schema);
        self.defaults.iter().find(is_same).map(|(name, _)| name.clone())
    }

    /// Writes the namespace where it is another one; returns the one before.
    fn open_namespace(&mut self, namespace: Option<String>) -> Option<String> {
        if namespace != self.namespace {
            self.push(",\"namespace\":");
            self.string(namespace.as_deref().unwrap_or_default());
        }
        std::mem::replace(&mut self.namespace, namespace)
    }

    fn field(&mut self, name: &str, schema: &'a Schema) -> Result<(), EncodeErrorKind> {
        self.push("{\"name\":");
        self.string(name);
        self.push(",\"type\":");
        self.schema(schema)?;
        if let Some(default) = &schema.default {
            self.push(",\"default\":");
            self.default(schema, default);
        } else if schema.optional {
            self.push(",\"default\":null");
        }
        self.push("}");
        Ok(())
    }

    /// The record of a key and its value, of a map whose keys are not text.
    fn map_entry(
        &mut self,
        schema: &'a Schema,
        key: &'a Schema,
        value: &'a Schema,
    ) -> Result<(), EncodeErrorKind> {
        let (namespace, name) = match &schema.name {
            Some(_) => self.name(schema),
            None => (Some(NAMESPACE.to_owned()), MAP_ENTRY.to_owned()),
        };
        let full = full_name(namespace.as_deref(), &name);
        if self.is_known(&full, |of| of.kind == schema.kind) {
            let is_near = namespace == self.namespace;
            self.string(if is_near { &name } else { &full });
            return Ok(());
        }
        self.remember(full, schema);
        self.push("{\"type\":\"record\",\"name\":");
        self.string(&name);
        let outer = self.open_namespace(namespace);
        self.push(",\"fields\":[");
        self.field("key", key)?;
        self.push(",");
        self.field("value", value)?;
        self.push("]");
        if schema.name.is_some() {
            self.push(",\"connect.internal.type\":\"MapEntry\"");
        }
        self.push("}");
        self.namespace = outer;
        Ok(())
    }

    fn name(&mut self, schema: &Schema) -> (Option<String>, String) {
        let Some(name) = schema.name() else {
            self.unnamed += 1;
            let number = if self.unnamed > 1 { self.unnamed.to_string() } else { String::new() };
            return (Some(NAMESPACE.to_owned()), format!("{DEFAULT_NAME}{number}"));
        };
        let mut parts: Vec<String> =
            name.split('.').map(|part| scrubbed(part, self.options)).collect();
        let last = parts.pop().unwrap_or_default();
        ((!parts.is_empty()).then(|| parts.join(".")), last)
    }

    /// Properties, and the end.
    fn finish(
        &mut self,
        schema: &Schema,
        connect_type: Option<&str>,
    ) -> Result<(), EncodeErrorKind> {
        let decimal = (schema.name() == Some("org.apache.kafka.connect.data.Decimal"))
            .then(|| decimal_parameters(schema));
        if let Some((scale, precision)) = decimal {
            self.push(&format!(",\"scale\":{scale},\"precision\":{precision}"));
        }
        if self.options.connect_meta_data {
            self.meta_data(schema, connect_type);
        }
        let logical =
            match schema.name().and_then(|n| n.strip_prefix("org.apache.kafka.connect.data.")) {
                Some("Decimal") => Some("decimal").filter(|_| {
                    let named = parameter(schema, "connect.decimal.precision").is_some();
                    decimal
                        .is_some_and(|(scale, precision)| named || (0..=precision).contains(&scale))
                }),
                Some("Time") => Some("time-millis"),
                Some("Timestamp") => Some("timestamp-millis"),
                Some("Date") => Some("date"),
                _ => None,
            };
        if let Some(logical) = logical {
            self.push(",\"logicalType\":");
            self.string(logical);
        }
        for (name, value) in &schema.parameters {
            if name.starts_with("avro") {
                self.push(",");
                self.string(name);
                self.push(":");
                self.string(value);
            }
        }
        self.push("}");
        Ok(())
    }

    fn meta_data(&mut self, schema: &Schema, connect_type: Option<&str>) {
        if let Some(doc) = &schema.doc {
            self.push(",\"connect.doc\":");
            self.string(doc);
        }
        if let Some(version) = schema.version {
            self.push(&format!(",\"connect.version\":{version}"));
        }
        for (index, (name, value)) in schema.parameters.iter().enumerate() {
            self.push(if index == 0 { ",\"connect.parameters\":{" } else { "," });
            self.string(name);
            self.push(":");
            self.string(value);
        }
        if !schema.parameters.is_empty() {
            self.push("}");
        }
        if let Some(default) = &schema.default {
            self.push(",\"connect.default\":");
            self.default(schema, default);
        }
        if let Some(name) = &schema.name {
            self.push(",\"connect.name\":");
            self.string(name);
        }
        if let Some(connect_type) = connect_type {
            self.push(",\"connect.type\":");
            self.string(connect_type);
        }
    }

    /// A default in Avro's JSON: bytes are text of a character each.
    fn default(&mut self, schema: &Schema, value: &Value) {
        let latin = |bytes: &[u8]| bytes.iter().copied().map(char::from).collect::<String>();
        match value {
            Value::Null => self.push("null"),
            Value::Int8(number) => self.push(&number.to_string()),
            Value::Int16(number) => self.push(&number.to_string()),
            Value::Int32(number) => self.push(&number.to_string()),
            Value::Int64(number) => self.push(&number.to_string()),
            Value::Date(millis) => {
                let is_date = schema.name() == Some("org.apache.kafka.connect.data.Date");
                let number = if is_date { millis / MILLIS_PER_DAY } else { *millis };
                self.push(&number.to_string());
            }
            Value::Float32(number) => self.number(&java_single(*number), number.is_finite()),
            Value::Float64(number) => self.number(&java_double(*number), number.is_finite()),
            Value::Boolean(is_true) => self.push(if *is_true { "true" } else { "false" }),
            Value::String(text) => self.string(text),
            Value::Bytes(bytes) => self.string(&latin(bytes)),
            Value::Decimal(decimal) => self.string(&latin(&decimal.unscaled_bytes())),
            Value::Array(elements) => {
                let Kind::Array(items) = &schema.kind else {
                    return self.push("[]");
                };
                self.push("[");
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        self.push(",");
                    }
                    self.default(items, element);
                }
                self.push("]");
            }
            // Debezium has no defaults of maps and structs.
            Value::Map(_) | Value::Struct(_) => self.push("{}"),
        }
    }

    fn number(&mut self, text: &str, is_finite: bool) {
        if is_finite {
            self.push(text);
        } else {
            self.string(text);
        }
    }
}

/// Whether NULL is the last of the union that an optional schema is.
pub(crate) fn is_null_last(schema: &Schema) -> bool {
    schema.default.is_some() && !matches!(schema.kind, Kind::Struct(_))
}

/// Whether a map with such keys is a map in Avro.
pub(crate) fn is_avro_map(key: &Schema) -> bool {
    key.kind == Kind::String && !key.optional
}

fn full_name(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}.{name}"))
}

/// The same record, may it be NULL or not.
fn is_alike(one: &Schema, other: &Schema) -> bool {
    (&one.kind, &one.version, &one.doc, &one.parameters)
        == (&other.kind, &other.version, &other.doc, &other.parameters)
}

fn parameter<'a>(schema: &'a Schema, name: &str) -> Option<&'a str> {
    schema.parameters.iter().find(|(known, _)| &**known == name).map(|(_, value)| &**value)
}

/// Scale and precision of a decimal.
fn decimal_parameters(schema: &Schema) -> (i64, i64) {
    let number = |name| parameter(schema, name).and_then(|text| text.parse().ok());
    let precision = number("connect.decimal.precision").unwrap_or(DEFAULT_PRECISION);
    (number("scale").unwrap_or(0), precision)
}

/// A part of a name with what Avro allows: the rest as in a URL, with `_`.
fn scrubbed(name: &str, options: &AvroOptions) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_valid = name.chars().all(is_allowed) && !name.starts_with(|c: char| c.is_ascii_digit());
    if !options.scrub_invalid_names || is_valid {
        return name.to_owned();
    }
    let mut out = String::with_capacity(name.len() + 8);
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        out.push('x');
    }
    for byte in name.bytes() {
        match char::from(byte) {
            c if is_allowed(c) => out.push(c),
            '.' | '-' | '*' | ' ' => out.push('_'),
            _ => out.push_str(&format!("_{byte:02X}")),
        }
    }
    out
}
