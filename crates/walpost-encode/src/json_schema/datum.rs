//! A value in JSON.

use crate::{
    connect::{DecimalFormat, Kind, Schema, Value, date_number, decimal_scale},
    error::EncodeErrorKind,
    json::{write_base64, write_list, write_object, write_string},
    number::{java_double, java_single},
};

use super::{JsonSchemaOptions, schema::is_object};

/// Writes a value; `false` without one, for NULL that the schema does not have.
pub(super) fn write(
    schema: &Schema,
    value: &Value,
    options: JsonSchemaOptions,
    out: &mut Vec<u8>,
) -> Result<bool, EncodeErrorKind> {
    match value {
        Value::Null => match &schema.default {
            Some(default) if !options.ignore_default => {
                return write(schema, default, options, out);
            }
            _ if schema.optional => out.extend_from_slice(b"null"),
            _ => return Ok(false),
        },
        Value::Int8(number) => integer((*number).into(), out),
        Value::Int16(number) => integer((*number).into(), out),
        Value::Int32(number) => integer((*number).into(), out),
        Value::Int64(number) => integer(*number, out),
        Value::Float32(number) => float(&java_single(*number), number.is_finite(), out),
        Value::Float64(number) => float(&java_double(*number), number.is_finite(), out),
        Value::Boolean(is_true) => {
            out.extend_from_slice(if *is_true { b"true" } else { b"false" });
        }
        Value::String(text) => write_string(text, out),
        Value::Bytes(bytes) => write_base64(bytes, out),
        Value::Decimal(decimal) => match options.decimal_format {
            DecimalFormat::Numeric => out.extend_from_slice(decimal.java().as_bytes()),
            DecimalFormat::Base64 if decimal_scale(Some(schema)) == Some(decimal.scale()) => {
                write_base64(&decimal.unscaled_bytes(), out);
            }
            DecimalFormat::Base64 => return Err(EncodeErrorKind::DecimalScale),
        },
        Value::Date(millis) => integer(date_number(Some(schema), *millis)?, out),
        Value::Array(elements) => {
            let items = schema.element().ok_or(EncodeErrorKind::InvalidJsonSchema)?;
            write_list(elements, out, |element, out| write_or_null(items, element, options, out))?;
        }
        Value::Map(entries) => write_map(schema, entries, options, out)?,
        Value::Struct(values) => write_struct(schema, values, options, out)?,
    }
    Ok(true)
}

/// Within arrays and maps there is no missing value.
fn write_or_null(
    schema: &Schema,
    value: &Value,
    options: JsonSchemaOptions,
    out: &mut Vec<u8>,
) -> Result<(), EncodeErrorKind> {
    if !write(schema, value, options, out)? {
        out.extend_from_slice(b"null");
    }
    Ok(())
}

fn integer(number: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(number.to_string().as_bytes());
}

fn float(text: &str, is_finite: bool, out: &mut Vec<u8>) {
    if is_finite {
        out.extend_from_slice(text.as_bytes());
    } else {
        write_string(text, out);
    }
}

/// An object where keys are text that is never NULL, else a list of objects.
fn write_map(
    schema: &Schema,
    entries: &[(Value, Value)],
    options: JsonSchemaOptions,
    out: &mut Vec<u8>,
) -> Result<(), EncodeErrorKind> {
    let (of_key, of_value) = schema.entry().ok_or(EncodeErrorKind::InvalidJsonSchema)?;
    if !is_object(of_key) {
        return write_list(entries, out, |(key, value), out| {
            out.extend_from_slice(b"{\"key\":");
            write_or_null(of_key, key, options, out)?;
            out.extend_from_slice(b",\"value\":");
            write_or_null(of_value, value, options, out)?;
            out.push(b'}');
            Ok(())
        });
    }
    write_object(entries, out, |(key, value), out| {
        write_or_null(of_key, key, options, out)?;
        out.push(b':');
        write_or_null(of_value, value, options, out)
    })
}

/// A member that is missing, as the schema has no NULL, is left out.
fn write_struct(
    schema: &Schema,
    values: &[Value],
    options: JsonSchemaOptions,
    out: &mut Vec<u8>,
) -> Result<(), EncodeErrorKind> {
    let Kind::Struct(fields) = &schema.kind else {
        return Err(EncodeErrorKind::InvalidJsonSchema);
    };
    out.push(b'{');
    let start = out.len();
    for (field, value) in fields.iter().zip(values) {
        let before = out.len();
        if before > start {
            out.push(b',');
        }
        write_string(&field.name, out);
        out.push(b':');
        if !write(&field.schema, value, options, out)? {
            out.truncate(before);
        }
    }
    out.push(b'}');
    Ok(())
}
