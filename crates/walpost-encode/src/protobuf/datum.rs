//! A value as a message.

use super::{
    ProtobufOptions,
    known::{Logical, is_packed, scalar},
    wire::{self, Wire},
};
use crate::{
    connect::{Decimal, Kind, MILLIS_PER_DAY, Schema, SchemaField, Value, civil_of},
    error::EncodeErrorKind,
};

type Written = Result<(), EncodeErrorKind>;

/// Writes which message of its file a value is, and the message.
pub(super) fn write(
    schema: &Schema,
    value: &Value,
    options: ProtobufOptions,
    out: &mut Vec<u8>,
) -> Written {
    if let Some(logical) = Logical::of(schema) {
        // It is none of the wrappers' file, and the first one is written for it.
        out.push(0);
        return write_logical(logical, value, out);
    }
    if let Some(scalar) = scalar(&schema.kind) {
        match scalar.wrapper.1 {
            0 => out.push(0),
            // One number, and both signed as Avro does it.
            index => out.extend_from_slice(&[2, 2 * index as u8]),
        }
        return write_scalar(1, value, false, out);
    }
    let (Kind::Struct(fields), Value::Struct(values)) = (&schema.kind, value) else {
        return Err(EncodeErrorKind::InvalidProtobuf);
    };
    out.push(0);
    write_struct(fields, values, options, out)
}

fn write_struct(
    fields: &[SchemaField],
    values: &[Value],
    options: ProtobufOptions,
    out: &mut Vec<u8>,
) -> Written {
    for ((field, value), number) in fields.iter().zip(values).zip(1..) {
        let schema = &*field.schema;
        let default = schema.default.as_ref().filter(|_| !options.ignore_default);
        let value = if *value == Value::Null { default.unwrap_or(value) } else { value };
        let keeps_zero = options.optional_for_nullables && schema.optional;
        match value {
            Value::Array(elements) => write_array(number, schema, elements, options, out)?,
            Value::Map(entries) => write_map(number, schema, entries, options, out)?,
            value => write_single(number, schema, value, (options, keeps_zero), out)?,
        }
    }
    Ok(())
}

fn write_array(
    number: u64,
    schema: &Schema,
    elements: &[Value],
    options: ProtobufOptions,
    out: &mut Vec<u8>,
) -> Written {
    let schema = schema.element().ok_or(EncodeErrorKind::InvalidProtobuf)?;
    if elements.contains(&Value::Null) {
        return Err(EncodeErrorKind::RequiredValue);
    }
    let is_plain = Logical::of(schema).is_none() && !is_wrapped(schema, options);
    if !is_plain || !is_packed(&schema.kind) {
        let mut elements = elements.iter();
        return elements
            .try_for_each(|value| write_single(number, schema, value, (options, true), out));
    }
    if elements.is_empty() {
        return Ok(());
    }
    let mut all = Vec::with_capacity(elements.len() * 2);
    elements.iter().try_for_each(|value| write_bare(value, &mut all))?;
    wire::bytes(number, &all, out);
    Ok(())
}

fn write_map(
    number: u64,
    schema: &Schema,
    entries: &[(Value, Value)],
    options: ProtobufOptions,
    out: &mut Vec<u8>,
) -> Written {
    let (of_key, of_value) = schema.entry().ok_or(EncodeErrorKind::InvalidProtobuf)?;
    for (key, value) in entries {
        let mut entry = Vec::new();
        for (schema, value, number) in [(of_key, key, 1), (of_value, value, 2)] {
            match value {
                Value::Array(elements) => {
                    write_array(number, schema, elements, options, &mut entry)?;
                }
                Value::Map(entries) => write_map(number, schema, entries, options, &mut entry)?,
                value => write_single(number, schema, value, (options, false), &mut entry)?,
            }
        }
        wire::bytes(number, &entry, out);
    }
    Ok(())
}

fn is_wrapped(schema: &Schema, options: ProtobufOptions) -> bool {
    options.wrapper_for_nullables && schema.optional && scalar(&schema.kind).is_some()
}

/// A field with one value, none for NULL; of zero only where it is kept.
fn write_single(
    number: u64,
    schema: &Schema,
    value: &Value,
    (options, keeps_zero): (ProtobufOptions, bool),
    out: &mut Vec<u8>,
) -> Written {
    if *value == Value::Null {
        return Ok(());
    }
    let mut message = Vec::new();
    if let Some(logical) = Logical::of(schema) {
        write_logical(logical, value, &mut message)?;
    } else if let (Kind::Struct(fields), Value::Struct(values)) = (&schema.kind, value) {
        write_struct(fields, values, options, &mut message)?;
    } else if is_wrapped(schema, options) {
        write_scalar(1, value, false, &mut message)?;
    } else {
        return write_scalar(number, value, keeps_zero, out);
    }
    wire::bytes(number, &message, out);
    Ok(())
}

fn write_scalar(number: u64, value: &Value, keeps_zero: bool, out: &mut Vec<u8>) -> Written {
    let (wire, is_zero) = match value {
        Value::Int8(number) => (Wire::Varint, *number == 0),
        Value::Int16(number) => (Wire::Varint, *number == 0),
        Value::Int32(number) => (Wire::Varint, *number == 0),
        Value::Int64(number) => (Wire::Varint, *number == 0),
        Value::Boolean(is_true) => (Wire::Varint, !*is_true),
        Value::Float32(number) => (Wire::Fixed32, number.to_bits() == 0),
        Value::Float64(number) => (Wire::Fixed64, number.to_bits() == 0),
        Value::String(text) => (Wire::Len, text.as_bytes().is_empty()),
        Value::Bytes(bytes) => (Wire::Len, bytes.is_empty()),
        _ => return Err(EncodeErrorKind::InvalidProtobuf),
    };
    if is_zero && !keeps_zero {
        return Ok(());
    }
    wire::tag(number, wire, out);
    write_bare(value, out)
}

/// Without the number of its field.
fn write_bare(value: &Value, out: &mut Vec<u8>) -> Written {
    match value {
        Value::Int8(number) => wire::integer((*number).into(), out),
        Value::Int16(number) => wire::integer((*number).into(), out),
        Value::Int32(number) => wire::integer((*number).into(), out),
        Value::Int64(number) => wire::integer(*number, out),
        Value::Boolean(is_true) => out.push((*is_true).into()),
        Value::Float32(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::Float64(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::String(text) => framed(text.as_bytes(), out),
        Value::Bytes(bytes) => framed(bytes, out),
        _ => return Err(EncodeErrorKind::InvalidProtobuf),
    }
    Ok(())
}

fn framed(bytes: &[u8], out: &mut Vec<u8>) {
    wire::varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Before this day Java has another calendar.
const GREGORIAN_MILLIS: i64 = -12_219_292_800_000;
/// Of the years 1 to 9999.
const TIMESTAMP_SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

fn write_logical(logical: Logical, value: &Value, out: &mut Vec<u8>) -> Written {
    let millis = match (logical, value) {
        (Logical::Decimal, Value::Decimal(decimal)) => {
            write_decimal(decimal, out);
            return Ok(());
        }
        (_, Value::Date(millis)) => *millis,
        _ => return Err(EncodeErrorKind::InvalidProtobuf),
    };
    match logical {
        Logical::Decimal => return Err(EncodeErrorKind::InvalidProtobuf),
        Logical::Date => {
            if millis % MILLIS_PER_DAY != 0 || millis < GREGORIAN_MILLIS {
                return Err(EncodeErrorKind::BeyondProtobuf);
            }
            let (year, month, day) = civil_of(millis / MILLIS_PER_DAY);
            wire::nonzero(1, i64::from(year as i32), out);
            wire::nonzero(2, month.into(), out);
            wire::nonzero(3, day.into(), out);
        }
        Logical::Time => {
            if !(0..=MILLIS_PER_DAY).contains(&millis) {
                return Err(EncodeErrorKind::TimeOfDay);
            }
            let seconds = millis / 1_000;
            wire::nonzero(1, seconds / 3_600 % 24, out);
            wire::nonzero(2, seconds / 60 % 60, out);
            wire::nonzero(3, seconds % 60, out);
            wire::nonzero(4, millis % 1_000 * 1_000_000, out);
        }
        Logical::Timestamp => {
            let seconds = millis.div_euclid(1_000);
            if !TIMESTAMP_SECONDS.contains(&seconds) {
                return Err(EncodeErrorKind::BeyondProtobuf);
            }
            wire::nonzero(1, seconds, out);
            wire::nonzero(2, millis.rem_euclid(1_000) * 1_000_000, out);
        }
    }
    Ok(())
}

fn write_decimal(decimal: &Decimal, out: &mut Vec<u8>) {
    wire::bytes(1, &decimal.unscaled_bytes(), out);
    wire::nonzero(2, i64::try_from(decimal.precision()).unwrap_or(i64::MAX), out);
    wire::nonzero(3, decimal.scale().into(), out);
}
