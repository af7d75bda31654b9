//! Names of messages and fields.

use std::borrow::Cow;

use super::ProtobufOptions;
use crate::error::EncodeErrorKind;

/// A part of a name, with other characters in place of those that Protobuf has
/// not, where that is asked for: those of its form in a URL, as far as they are
/// letters, digits and `_`.
pub(super) fn scrubbed(name: &str, options: ProtobufOptions) -> Cow<'_, str> {
    let starts_well = !name.starts_with(|first: char| first.is_ascii_digit() || first == '_');
    let is_legal = starts_well && name.bytes().all(is_letter);
    if !options.scrub_invalid_names || is_legal {
        return Cow::Borrowed(name);
    }
    let mut out = String::with_capacity(name.len() + 1);
    if !starts_well {
        out.push('x');
    }
    for byte in name.bytes() {
        match byte {
            _ if is_letter(byte) => out.push(char::from(byte)),
            b' ' | b'.' | b'-' | b'*' => out.push('_'),
            _ => out.push_str(&format!("_{byte:02X}")),
        }
    }
    Cow::Owned(out)
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// A name of a message or a field.
///
/// # Errors
/// [`EncodeErrorKind::InvalidProtobuf`] for what is none.
pub(super) fn legal(name: Cow<'_, str>) -> Result<String, EncodeErrorKind> {
    let starts_well = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    match starts_well && name.bytes().all(is_letter) {
        true => Ok(name.into_owned()),
        false => Err(EncodeErrorKind::InvalidProtobuf),
    }
}

/// A whole name as package and name; empty parts at the end are none, as in Java.
///
/// # Errors
/// [`EncodeErrorKind::InvalidProtobuf`] for a name that begins with an empty part.
pub(super) fn split(
    name: &str,
    options: ProtobufOptions,
) -> Result<(Option<String>, String), EncodeErrorKind> {
    let parts = name.trim_end_matches('.').split('.').map(|part| scrubbed(part, options));
    let mut parts: Vec<Cow<'_, str>> = parts.collect();
    let last = parts.pop().unwrap_or_default();
    if parts.first().is_some_and(|first| first.is_empty()) {
        return Err(EncodeErrorKind::InvalidProtobuf);
    }
    Ok(((!parts.is_empty()).then(|| parts.join(".")), legal(last)?))
}
