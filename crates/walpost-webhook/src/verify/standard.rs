//! Standard Webhooks 1.0.0, "Signature scheme" and "Verifying webhooks".

use http::{HeaderMap, HeaderName};

use super::{
    Encoding, Rejection, Verified, Window,
    fields::{decode, malformed, pieces, text, timestamp},
};
use crate::{VerifyingKey, sign::is_id};

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

pub(super) fn verify(
    keys: &[VerifyingKey],
    headers: &HeaderMap,
    body: &[u8],
    window: Window,
) -> Result<Verified, Rejection> {
    let id = text(headers, &ID)?;
    if !is_id(id.as_bytes()) {
        return Err(malformed(&ID));
    }
    let signed_at = text(headers, &TIMESTAMP)?;
    let timestamp_seconds = timestamp(signed_at, &TIMESTAMP)?;
    let signatures = read(text(headers, &SIGNATURE)?)?;
    window.check(timestamp_seconds)?;
    // As it stands in the header: zeros before a number are signed as well.
    let parts = [id.as_bytes(), b".", signed_at.as_bytes(), b".", body];
    let mut is_known = false;
    for (tag, signature) in &signatures {
        for key in keys.iter().filter(|key| key.tag() == *tag) {
            is_known = true;
            if key.verifies(&parts, signature) {
                let id = Some(id.to_owned());
                return Ok(Verified { id, timestamp_seconds: Some(timestamp_seconds) });
            }
        }
    }
    Err(if is_known {
        Rejection::Mismatch
    } else {
        Rejection::NoKnownSignature { header: SIGNATURE }
    })
}

/// Those with a known tag; others are for receivers of another day.
fn read(text: &str) -> Result<Vec<(&str, Vec<u8>)>, Rejection> {
    let mut signatures = Vec::new();
    for piece in pieces(text, ' ', &SIGNATURE)? {
        let (tag, signature) = piece.split_once(',').ok_or_else(|| malformed(&SIGNATURE))?;
        if matches!(tag, "v1" | "v1a") {
            signatures.push((tag, decode(signature, Encoding::Base64, &SIGNATURE)?));
        }
    }
    Ok(signatures)
}
