//! A value in Avro's binary form.

use crate::{
    connect::{Kind, Schema, Value, date_number, decimal_scale, in_java_order},
    error::EncodeErrorKind,
};

use super::schema::{is_avro_map, is_null_last};

/// Writes a value; of bytes that are required, the bytes alone, as Confluent's
/// serializer has it.
pub(crate) fn write(
    schema: &Schema,
    value: &Value,
    out: &mut Vec<u8>,
) -> Result<(), EncodeErrorKind> {
    if schema.optional {
        return write_datum(schema, value, out);
    }
    match value {
        Value::Bytes(bytes) => out.extend_from_slice(bytes),
        Value::Decimal(_) => out.extend_from_slice(&decimal(schema, value)?),
        value => write_datum(schema, value, out)?,
    }
    Ok(())
}

/// Bytes that a value takes, as a guess.
pub(crate) fn size_hint(value: &Value) -> usize {
    match value {
        Value::String(text) => 5 + text.as_bytes().len(),
        Value::Bytes(bytes) => 5 + bytes.len(),
        Value::Array(values) | Value::Struct(values) => values.iter().map(size_hint).sum(),
        _ => 9,
    }
}

/// Writes a value, and before it whether it is there where it may be missing.
pub(crate) fn write_datum(
    schema: &Schema,
    value: &Value,
    out: &mut Vec<u8>,
) -> Result<(), EncodeErrorKind> {
    if schema.optional {
        let is_null = *value == Value::Null;
        write_long(i64::from(is_null == is_null_last(schema)), out);
        if is_null {
            return Ok(());
        }
    }
    write_present(schema, value, out)
}

/// Writes a value as one that is there, whether or not it may be missing.
pub(crate) fn write_present(
    schema: &Schema,
    value: &Value,
    out: &mut Vec<u8>,
) -> Result<(), EncodeErrorKind> {
    match value {
        Value::Null => return Err(EncodeErrorKind::RequiredValue),
        Value::Int8(number) => write_long((*number).into(), out),
        Value::Int16(number) => write_long((*number).into(), out),
        Value::Int32(number) => write_long((*number).into(), out),
        Value::Int64(number) => write_long(*number, out),
        Value::Float32(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::Float64(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::Boolean(is_true) => out.push((*is_true).into()),
        Value::String(text) => write_bytes(text.as_bytes(), out),
        Value::Bytes(bytes) => write_bytes(bytes, out),
        Value::Decimal(_) => write_bytes(&decimal(schema, value)?, out),
        Value::Date(millis) => write_long(date_number(Some(schema), *millis)?, out),
        Value::Array(elements) => {
            let items = schema.element().ok_or(EncodeErrorKind::InvalidAvro)?;
            write_block(elements, out, |element, out| write_datum(items, element, out))?;
        }
        Value::Map(entries) => write_map(schema, entries, out)?,
        Value::Struct(values) => {
            let Kind::Struct(fields) = &schema.kind else {
                return Err(EncodeErrorKind::InvalidAvro);
            };
            if fields.len() != values.len() {
                return Err(EncodeErrorKind::RequiredValue);
            }
            for (field, value) in fields.iter().zip(values) {
                // A default stands for NULL.
                let default = field.schema.default.as_ref().filter(|_| *value == Value::Null);
                write_datum(&field.schema, default.unwrap_or(value), out)?;
            }
        }
    }
    Ok(())
}

/// A map, or an array of records of key and value, which has the same form.
fn write_map(
    schema: &Schema,
    entries: &[(Value, Value)],
    out: &mut Vec<u8>,
) -> Result<(), EncodeErrorKind> {
    let (of_key, of_value) = schema.entry().ok_or(EncodeErrorKind::InvalidAvro)?;
    let write_entry = |(key, value): &(Value, Value), out: &mut Vec<u8>| {
        write_datum(of_key, key, out)?;
        write_datum(of_value, value, out)
    };
    if is_avro_map(of_key) {
        return write_block(&in_java_order(entries), out, |entry, out| write_entry(entry, out));
    }
    write_block(entries, out, write_entry)
}

/// One block of all items, and the end.
fn write_block<T>(
    items: &[T],
    out: &mut Vec<u8>,
    write_item: impl Fn(&T, &mut Vec<u8>) -> Result<(), EncodeErrorKind>,
) -> Result<(), EncodeErrorKind> {
    if !items.is_empty() {
        write_long(items.len() as i64, out);
        for item in items {
            write_item(item, out)?;
        }
    }
    write_long(0, out);
    Ok(())
}

fn decimal(schema: &Schema, value: &Value) -> Result<Vec<u8>, EncodeErrorKind> {
    match value {
        Value::Decimal(decimal) if decimal_scale(Some(schema)) == Some(decimal.scale()) => {
            Ok(decimal.unscaled_bytes())
        }
        _ => Err(EncodeErrorKind::DecimalScale),
    }
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_long(bytes.len() as i64, out);
    out.extend_from_slice(bytes);
}

/// Small numbers first, of either sign (zigzag), then seven bits to a byte.
fn write_long(number: i64, out: &mut Vec<u8>) {
    let mut bits = ((number << 1) ^ (number >> 63)) as u64;
    while bits >= 0x80 {
        out.push(bits as u8 | 0x80);
        bits >>= 7;
    }
    out.push(bits as u8);
}
