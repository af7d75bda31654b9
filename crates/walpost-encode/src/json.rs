use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use walpost_event::{Field, NamedField, type_oid};

use crate::{
    error::{EncodeErrorKind, Part},
    number,
    raw::{float_text, malformed, parse_bool},
};

/// What JSON leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonOptions {
    /// `json_payload`: how `json` and `jsonb` columns appear, in a payload, an
    /// envelope or a key.
    pub json_payload: JsonPayload,
    /// `null_key`: what a NULL key becomes.
    pub null_key: NullKey,
}

impl JsonOptions {
    /// Walpost's own: JSON stays JSON, and a NULL key is no key.
    pub const WALPOST: Self = Self { json_payload: JsonPayload::Embed, null_key: NullKey::None };
}

/// How `json` and `jsonb` columns appear in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonPayload {
    /// `escape`: as a string that holds the JSON text, `"{\"a\": 1}"`, as
    /// Debezium has it.
    Escape,
    /// `embed`: as the JSON that they are, `{"a": 1}`, exactly as PostgreSQL
    /// prints it.
    Embed,
}

/// What a NULL key becomes in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NullKey {
    /// `null`: the four bytes `null`, as Kafka Connect has it. That is a key:
    /// all such records go to one partition.
    Null,
    /// `none`: no key, so that such records spread over the partitions.
    None,
}

/// A key.
pub(crate) fn encode_key(
    field: Option<&Field>,
    options: JsonOptions,
) -> Result<Option<Bytes>, EncodeErrorKind> {
    match (field.filter(|field| field.bytes.is_some()), options.null_key) {
        (Some(field), _) => encode(field, options).map(Some),
        (None, NullKey::Null) => Ok(Some(Bytes::from_static(b"null"))),
        (None, NullKey::None) => Ok(None),
    }
}

/// A bare payload. JSON that is embedded stays shared.
pub(crate) fn encode(field: &Field, options: JsonOptions) -> Result<Bytes, EncodeErrorKind> {
    let is_json = matches!(field.type_oid, type_oid::JSON | type_oid::JSONB);
    match &field.bytes {
        Some(json) if is_json && options.json_payload == JsonPayload::Embed => Ok(json.clone()),
        _ => {
            let mut out = Vec::with_capacity(capacity(field));
            write(field, options, &mut out)?;
            Ok(out.into())
        }
    }
}

/// An object of the members, in order.
pub(crate) fn encode_envelope(
    members: &[NamedField],
    options: JsonOptions,
) -> Result<Bytes, (EncodeErrorKind, Part)> {
    let size = members.iter().map(|member| member.name.len() + 4 + capacity(&member.field));
    let mut out = Vec::with_capacity(2 + size.sum::<usize>());
    for (index, member) in members.iter().enumerate() {
        out.push(if index == 0 { b'{' } else { b',' });
        write_string(&member.name, &mut out);
        out.push(b':');
        write(&member.field, options, &mut out)
            .map_err(|kind| (kind, Part::Member(member.name.clone())))?;
    }
    if members.is_empty() {
        out.push(b'{');
    }
    out.push(b'}');
    Ok(out.into())
}

/// Bytes that `field` takes as a guess: its text, with quotes, and some more
/// where it must be escaped or is base64.
fn capacity(field: &Field) -> usize {
    field.bytes.as_ref().map_or(4, |bytes| bytes.len() + bytes.len() / 3 + 4)
}

fn write(field: &Field, options: JsonOptions, out: &mut Vec<u8>) -> Result<(), EncodeErrorKind> {
    let Some(bytes) = &field.bytes else {
        out.extend_from_slice(b"null");
        return Ok(());
    };
    let oid = field.type_oid;
    match oid {
        type_oid::JSON | type_oid::JSONB if options.json_payload == JsonPayload::Embed => {
            out.extend_from_slice(bytes);
        }
        type_oid::BYTEA => write_base64(bytes, out),
        type_oid::BOOL => {
            let text = if parse_bool(bytes)? { "true" } else { "false" };
            out.extend_from_slice(text.as_bytes());
        }
        type_oid::INT2 | type_oid::INT4 | type_oid::INT8 | type_oid::OID | type_oid::XID8 => {
            if !number::is_integer(bytes) {
                return Err(malformed(oid, bytes));
            }
            out.extend_from_slice(bytes);
        }
        type_oid::FLOAT4 | type_oid::FLOAT8 => write_float(&float_text(oid, bytes)?, out),
        type_oid::NUMERIC if number::is_json_number(bytes) => out.extend_from_slice(bytes),
        _ => {
            let text = std::str::from_utf8(bytes)
                .map_err(|_| EncodeErrorKind::NotUtf8 { len: bytes.len() })?;
            write_string(text, out);
        }
    }
    Ok(())
}

/// JSON has no numbers for NaN and the infinities: they are strings, as Kafka
/// Connect writes them.
fn write_float(text: &str, out: &mut Vec<u8>) {
    if number::is_json_number(text.as_bytes()) {
        out.extend_from_slice(text.as_bytes());
    } else {
        write_string(text, out);
    }
}

pub(crate) fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(bytes, &mut out[start..]);
    debug_assert!(written.is_ok(), "there is room for it");
    out.push(b'"');
}

/// An array of what `write_item` writes.
pub(crate) fn write_list<T>(
    items: &[T],
    out: &mut Vec<u8>,
    write_item: impl Fn(&T, &mut Vec<u8>) -> Result<(), EncodeErrorKind>,
) -> Result<(), EncodeErrorKind> {
    write_between([b'[', b']'], items, out, write_item)
}

/// An object; `write_member` writes name, colon and value.
pub(crate) fn write_object<T>(
    members: &[T],
    out: &mut Vec<u8>,
    write_member: impl Fn(&T, &mut Vec<u8>) -> Result<(), EncodeErrorKind>,
) -> Result<(), EncodeErrorKind> {
    write_between([b'{', b'}'], members, out, write_member)
}

fn write_between<T>(
    [open, close]: [u8; 2],
    items: &[T],
    out: &mut Vec<u8>,
    write_item: impl Fn(&T, &mut Vec<u8>) -> Result<(), EncodeErrorKind>,
) -> Result<(), EncodeErrorKind> {
    out.push(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_item(item, out)?;
    }
    out.push(close);
    Ok(())
}

/// A string literal with the escapes that Kafka Connect's JSON writer uses:
/// short ones where there are, else `\u` with capital digits; beyond ASCII only
/// what takes two characters in Java, and then both.
pub(crate) fn write_string(text: &str, out: &mut Vec<u8>) {
    write_escaped(text, |byte| matches!(byte, 0..0x20 | b'"' | b'\\' | 0xf0..), out);
}

/// The same, with nothing beyond ASCII escaped.
pub(crate) fn write_plain_string(text: &str, out: &mut Vec<u8>) {
    write_escaped(text, |byte| matches!(byte, 0..0x20 | b'"' | b'\\'), out);
}

fn write_escaped(text: &str, is_escaped: impl Fn(&u8) -> bool, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text;
    while let Some(at) = rest.as_bytes().iter().position(&is_escaped) {
        let (plain, behind) = rest.split_at(at);
        out.extend_from_slice(plain.as_bytes());
        let mut chars = behind.chars();
        match chars.next().unwrap_or_default() {
            c @ ('"' | '\\') => out.extend_from_slice(&[b'\\', c as u8]),
            '\u{8}' => out.extend_from_slice(b"\\b"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\u{c}' => out.extend_from_slice(b"\\f"),
            '\r' => out.extend_from_slice(b"\\r"),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write_unit(*unit, out);
                }
            }
        }
        rest = chars.as_str();
    }
    out.extend_from_slice(rest.as_bytes());
    out.push(b'"');
}

fn write_unit(unit: u16, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(b"\\u");
    for shift in [12, 8, 4, 0] {
        out.push(DIGITS[usize::from(unit >> shift & 15)]);
    }
}
