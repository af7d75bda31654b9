//! Values as text: that of `StringConverter`, which is Java's `toString`, and
//! that of `SimpleHeaderConverter`.

use std::fmt::Write;

use base64::{Engine, engine::general_purpose::STANDARD};

use super::{
    schema::{Kind, Schema},
    temporal,
    value::Value,
};
use crate::{
    error::EncodeErrorKind,
    number::{java_double, java_single},
};

/// A value as `StringConverter` has it.
///
/// Bytes and Kafka Connect's own dates have no text there but the name of a
/// Java object, or one that depends on the machine's time zone: an error.
pub(crate) fn java_string(
    schema: Option<&Schema>,
    value: &Value,
) -> Result<String, EncodeErrorKind> {
    let mut out = String::new();
    write_java(schema, value, &mut out)?;
    Ok(out)
}

fn write_java(
    schema: Option<&Schema>,
    value: &Value,
    out: &mut String,
) -> Result<(), EncodeErrorKind> {
    match value {
        Value::Bytes(_) | Value::Date(_) => return Err(EncodeErrorKind::NoText),
        Value::Array(elements) => {
            let of_element = schema.and_then(Schema::element);
            write_between(elements, ["[", ", ", "]"], out, |element, out| {
                write_java(of_element, element, out)
            })?;
        }
        Value::Map(entries) => {
            let (of_key, of_value) = schema.and_then(Schema::entry).unzip();
            write_between(entries, ["{", ", ", "}"], out, |(key, value), out| {
                write_java(of_key, key, out)?;
                out.push('=');
                write_java(of_value, value, out)
            })?;
        }
        Value::Struct(values) => {
            let present: Vec<_> =
                fields(schema).zip(values).filter(|(_, v)| **v != Value::Null).collect();
            write_between(&present, ["Struct{", ",", "}"], out, |((name, schema), value), out| {
                out.push_str(name);
                out.push('=');
                write_java(Some(schema), value, out)
            })?;
        }
        value => write_plain(value, out),
    }
    Ok(())
}

/// A value as `SimpleHeaderConverter` has it. Kafka Connect's own dates are
/// those of a machine in UTC.
pub(crate) fn header(schema: Option<&Schema>, value: &Value) -> String {
    let mut out = String::new();
    write_header(schema, value, false, &mut out);
    out
}

fn write_header(schema: Option<&Schema>, value: &Value, is_within: bool, out: &mut String) {
    match value {
        Value::String(text) if is_within => write_quoted(text, out),
        Value::Bytes(bytes) => {
            let text = STANDARD.encode(bytes);
            out.push_str(&if is_within { format!("\"{text}\"") } else { text });
        }
        Value::Date(millis) => write_date(*millis, out),
        Value::Array(elements) => {
            let of_element = schema.and_then(Schema::element);
            write_infallibly(elements, ["[", ",", "]"], out, |element, out| {
                write_header(of_element, element, true, out);
            });
        }
        Value::Map(entries) => {
            let (of_key, of_value) = schema.and_then(Schema::entry).unzip();
            write_infallibly(entries, ["{", ",", "}"], out, |(key, value), out| {
                write_header(of_key, key, true, out);
                out.push(':');
                write_header(of_value, value, true, out);
            });
        }
        Value::Struct(values) => {
            let all: Vec<_> = fields(schema).zip(values).collect();
            write_infallibly(&all, ["{", ",", "}"], out, |((name, schema), value), out| {
                write_quoted(name, out);
                out.push(':');
                let default = schema.default.as_ref().filter(|_| **value == Value::Null);
                write_header(Some(schema), default.unwrap_or(value), true, out);
            });
        }
        value => write_plain(value, out),
    }
}

/// What is the same in both.
fn write_plain(value: &Value, out: &mut String) {
    // Writing to a string does not fail.
    let _ = match value {
        Value::Int8(number) => write!(out, "{number}"),
        Value::Int16(number) => write!(out, "{number}"),
        Value::Int32(number) => write!(out, "{number}"),
        Value::Int64(number) => write!(out, "{number}"),
        Value::Boolean(is_true) => write!(out, "{is_true}"),
        Value::Float32(number) => out.write_str(&java_single(*number)),
        Value::Float64(number) => out.write_str(&java_double(*number)),
        Value::Decimal(decimal) => out.write_str(&decimal.java()),
        Value::String(text) => out.write_str(text),
        _ => out.write_str("null"),
    };
}

fn write_quoted(text: &str, out: &mut String) {
    out.push('"');
    out.push_str(&text.replace('\\', "\\\\").replace('"', "\\\""));
    out.push('"');
}

/// A time where it is before 1970-01-02, a date where it is midnight.
fn write_date(millis: i64, out: &mut String) {
    let micros = temporal::Micros::from(millis) * 1_000;
    let text = temporal::iso_timestamp(micros, Some(3));
    let text = text.trim_start_matches('+');
    let (date, time) = text.split_once('T').unwrap_or((text, ""));
    if millis < temporal::MILLIS_PER_DAY {
        out.push_str(time);
    } else if millis % temporal::MILLIS_PER_DAY == 0 {
        out.push_str(date);
    } else {
        out.push_str(text);
    }
}

fn fields(schema: Option<&Schema>) -> impl Iterator<Item = (&str, &Schema)> {
    let fields = match schema.map(|schema| &schema.kind) {
        Some(Kind::Struct(fields)) => fields.as_slice(),
        _ => &[],
    };
    fields.iter().map(|field| (&*field.name, &*field.schema))
}

fn write_between<T>(
    items: &[T],
    [start, between, end]: [&str; 3],
    out: &mut String,
    write: impl Fn(&T, &mut String) -> Result<(), EncodeErrorKind>,
) -> Result<(), EncodeErrorKind> {
    out.push_str(start);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(between);
        }
        write(item, out)?;
    }
    out.push_str(end);
    Ok(())
}

fn write_infallibly<T>(
    items: &[T],
    marks: [&str; 3],
    out: &mut String,
    write: impl Fn(&T, &mut String),
) {
    let written = write_between(items, marks, out, |item, out| {
        write(item, out);
        Ok(())
    });
    debug_assert!(written.is_ok(), "no item fails");
}
