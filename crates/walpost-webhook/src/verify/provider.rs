//! The ways of others.

use aws_lc_rs::hmac;
use http::{HeaderMap, HeaderName};

use super::{
    Encoding, HmacScheme, Rejection, Verified, Window,
    fields::{decode, malformed, pieces, text, timestamp},
};
use crate::key::hmac_verifies;

const STRIPE: HeaderName = HeaderName::from_static("stripe-signature");
const SLACK: HeaderName = HeaderName::from_static("x-slack-signature");
const SLACK_TIMESTAMP: HeaderName = HeaderName::from_static("x-slack-request-timestamp");

/// `t=<seconds>,v1=<hex>`, with further `v1` while a secret is replaced, and
/// schemes that are not checked; over `<seconds>.<body>`.
pub(super) fn stripe(
    keys: &[hmac::Key],
    headers: &HeaderMap,
    body: &[u8],
    window: Window,
) -> Result<Verified, Rejection> {
    let (mut signed_at, mut signatures) = (None, Vec::new());
    for piece in pieces(text(headers, &STRIPE)?, ',', &STRIPE)? {
        match piece.split_once('=').ok_or_else(|| malformed(&STRIPE))? {
            ("t", _) if signed_at.is_some() => return Err(malformed(&STRIPE)),
            ("t", seconds) => signed_at = Some(seconds),
            ("v1", signature) => signatures.push(decode(signature, Encoding::Hex, &STRIPE)?),
            _ => {}
        }
    }
    let signed_at = signed_at.ok_or_else(|| malformed(&STRIPE))?;
    let timestamp_seconds = timestamp(signed_at, &STRIPE)?;
    window.check(timestamp_seconds)?;
    if signatures.is_empty() {
        return Err(Rejection::NoKnownSignature { header: STRIPE });
    }
    let parts: [&[u8]; 3] = [signed_at.as_bytes(), b".", body];
    any_fits(keys, &parts, &signatures)?;
    Ok(Verified { id: None, timestamp_seconds: Some(timestamp_seconds) })
}

/// `v0=<hex>` over `v0:<seconds>:<body>`.
pub(super) fn slack(
    keys: &[hmac::Key],
    headers: &HeaderMap,
    body: &[u8],
    window: Window,
) -> Result<Verified, Rejection> {
    let signed_at = text(headers, &SLACK_TIMESTAMP)?;
    let timestamp_seconds = timestamp(signed_at, &SLACK_TIMESTAMP)?;
    let signature = prefixed(headers, &SLACK, "v0=", Encoding::Hex)?;
    window.check(timestamp_seconds)?;
    let parts: [&[u8]; 4] = [b"v0:", signed_at.as_bytes(), b":", body];
    any_fits(keys, &parts, &[signature])?;
    Ok(Verified { id: None, timestamp_seconds: Some(timestamp_seconds) })
}

/// Over the body alone.
pub(super) fn plain(
    scheme: &HmacScheme,
    keys: &[hmac::Key],
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Verified, Rejection> {
    let signature = prefixed(headers, &scheme.header, &scheme.prefix, scheme.encoding)?;
    any_fits(keys, &[body], &[signature])?;
    Ok(Verified::default())
}

fn prefixed(
    headers: &HeaderMap,
    header: &HeaderName,
    prefix: &str,
    encoding: Encoding,
) -> Result<Vec<u8>, Rejection> {
    let signature = text(headers, header)?.strip_prefix(prefix);
    decode(signature.ok_or_else(|| malformed(header))?, encoding, header)
}

fn any_fits(keys: &[hmac::Key], parts: &[&[u8]], signatures: &[Vec<u8>]) -> Result<(), Rejection> {
    let fits = |key| signatures.iter().any(|signature| hmac_verifies(key, parts, signature));
    if keys.iter().any(fits) { Ok(()) } else { Err(Rejection::Mismatch) }
}
