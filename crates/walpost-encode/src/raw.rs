use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use walpost_event::{Field, type_oid};

use crate::{error::EncodeErrorKind, number};

/// A key or value: text as it is, `bytea` as its bytes, NULL as nothing.
pub(crate) fn encode(field: &Field) -> Result<Option<Bytes>, EncodeErrorKind> {
    field.bytes.as_ref().map(|bytes| plain(field.type_oid, bytes)).transpose()
}

/// A header: as a value, but `bytea` in base64.
pub(crate) fn encode_header(field: &Field) -> Result<Option<Bytes>, EncodeErrorKind> {
    match &field.bytes {
        Some(bytes) if field.type_oid == type_oid::BYTEA => Ok(Some(STANDARD.encode(bytes).into())),
        _ => encode(field),
    }
}

/// Is `text` true, in PostgreSQL's text or JSON's?
pub(crate) fn parse_bool(text: &[u8]) -> Result<bool, EncodeErrorKind> {
    match text {
        b"t" | b"true" => Ok(true),
        b"f" | b"false" => Ok(false),
        _ => Err(malformed(type_oid::BOOL, text)),
    }
}

/// The text of a `real` or `double precision` as Java writes it.
pub(crate) fn float_text(oid: u32, text: &[u8]) -> Result<String, EncodeErrorKind> {
    let parsed = std::str::from_utf8(text).ok().and_then(|text| match oid {
        type_oid::FLOAT4 => number::parse_single(text).map(number::java_single),
        _ => number::parse_double(text).map(number::java_double),
    });
    parsed.ok_or_else(|| malformed(oid, text))
}

pub(crate) fn malformed(type_oid: u32, text: &[u8]) -> EncodeErrorKind {
    EncodeErrorKind::Malformed { type_oid, len: text.len() }
}

fn plain(oid: u32, bytes: &Bytes) -> Result<Bytes, EncodeErrorKind> {
    Ok(match oid {
        type_oid::BOOL if parse_bool(bytes)? => Bytes::from_static(b"true"),
        type_oid::BOOL => Bytes::from_static(b"false"),
        type_oid::FLOAT4 | type_oid::FLOAT8 => float_text(oid, bytes)?.into(),
        _ => bytes.clone(),
    })
}
