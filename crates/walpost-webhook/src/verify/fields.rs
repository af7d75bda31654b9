//! Headers, and what stands in them.

use base64::Engine;
use http::{HeaderMap, HeaderName};

use super::{Encoding, Rejection};
use crate::key::BASE64;

/// Signatures in one header; more are no rotation of keys but work for us.
const SIGNATURES_MAX: usize = 32;
/// Until the year 5138.
const TIMESTAMP_DIGITS_MAX: usize = 11;

/// The text of a header that has to be there once.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a str, Rejection> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or_else(|| Rejection::MissingHeader { header: name.clone() })?;
    if values.next().is_some() {
        return Err(Rejection::DuplicateHeader { header: name.clone() });
    }
    value.to_str().map_err(|_| malformed(name))
}

/// Whole seconds since 1970, in digits alone.
pub(super) fn timestamp(text: &str, header: &HeaderName) -> Result<u64, Rejection> {
    let is_number = (1..=TIMESTAMP_DIGITS_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).ok_or_else(|| malformed(header))
}

/// The pieces between `separator`, if there are not too many.
pub(super) fn pieces<'a>(
    text: &'a str,
    separator: char,
    header: &HeaderName,
) -> Result<Vec<&'a str>, Rejection> {
    let pieces: Vec<&str> = text.split(separator).take(SIGNATURES_MAX + 1).collect();
    if pieces.len() > SIGNATURES_MAX { Err(malformed(header)) } else { Ok(pieces) }
}

/// The bytes of a signature.
pub(super) fn decode(
    text: &str,
    encoding: Encoding,
    header: &HeaderName,
) -> Result<Vec<u8>, Rejection> {
    let bytes = match encoding {
        Encoding::Base64 => BASE64.decode(text).ok(),
        Encoding::Hex => unhex(text),
    };
    bytes.filter(|bytes| !bytes.is_empty()).ok_or_else(|| malformed(header))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    text.as_bytes().chunks(2).map(byte).collect()
}

pub(super) fn malformed(header: &HeaderName) -> Rejection {
    Rejection::MalformedHeader { header: header.clone() }
}
