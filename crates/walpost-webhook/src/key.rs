use std::{fmt, str::FromStr, sync::Arc};

use aws_lc_rs::{
    constant_time::verify_slices_are_equal,
    hmac::{self, HMAC_SHA256},
    signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey},
};
use base64::{
    Engine,
    alphabet::STANDARD as ALPHABET,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

/// Writes padding, and reads with or without it.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const SECRET: &str = "whsec_";
const PRIVATE: &str = "whsk_";
const PUBLIC: &str = "whpk_";

/// Standard Webhooks, "Signature scheme": a secret has 24 to 64 bytes.
const SECRET_BYTES_MIN: usize = 24;
const SECRET_BYTES_MAX: usize = 64;
const SEED_BYTES: usize = 32;
const PUBLIC_BYTES: usize = 32;

/// A key of Standard Webhooks that makes signatures, read from its text:
///
/// | text | what it is | signatures |
/// |---|---|---|
/// | `whsec_` and base64 of 24 to 64 bytes | a secret that both sides have | HMAC-SHA256, `v1` |
/// | `whsk_` and base64 of 32 bytes, or of 64 with the public key behind them | a private key | ed25519, `v1a` |
///
/// ```
/// use walpost_webhook::{KeyError, SigningKey};
///
/// let key: SigningKey = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD".parse()?;
/// assert_eq!(format!("{key:?}"), "SigningKey(v1, ***)");
/// # Ok::<(), KeyError>(())
/// ```
#[derive(Clone)]
pub struct SigningKey(Signing);

#[derive(Clone)]
enum Signing {
    Hmac(Arc<hmac::Key>),
    Ed25519(Arc<Ed25519KeyPair>),
}

/// A key of Standard Webhooks that checks signatures: the secret itself,
/// `whsec_`, or a public key, `whpk_` and base64 of 32 bytes.
#[derive(Clone)]
pub struct VerifyingKey(Verifying);

#[derive(Clone)]
enum Verifying {
    Hmac(Arc<hmac::Key>),
    Ed25519([u8; PUBLIC_BYTES]),
}

/// The text is no key that can be used for this. No text of this has any of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// It begins with none of the known prefixes.
    #[error("a key begins with whsec_, whsk_ or whpk_")]
    Prefix,
    /// A public key was given where something is to be signed.
    #[error("a key that begins with whpk_ is public and cannot sign; give its whsk_ key")]
    Public,
    /// A private key was given where something is to be checked.
    #[error("a key that begins with whsk_ is the sender's; a receiver has its whpk_ key")]
    Private,
    /// What follows the prefix is no base64.
    #[error("what follows the prefix of a key is no base64 in the alphabet with + and /")]
    Base64,
    /// It is too short or too long.
    #[error("a key of this kind has {min} to {max} bytes, this one has {bytes}")]
    Length {
        /// How many it has.
        bytes: usize,
        /// How many it has at least.
        min: usize,
        /// How many it has at most.
        max: usize,
    },
    /// The second half is not the public key of the first.
    #[error("the second half of a whsk_ key is not the public key of its first half")]
    Halves,
}

impl SigningKey {
    /// `v1` or `v1a`: what stands before its signatures.
    pub fn tag(&self) -> &'static str {
        match self.0 {
            Signing::Hmac(_) => "v1",
            Signing::Ed25519(_) => "v1a",
        }
    }

    /// What a receiver checks its signatures with.
    pub fn verifying_key(&self) -> VerifyingKey {
        VerifyingKey(match &self.0 {
            Signing::Hmac(key) => Verifying::Hmac(Arc::clone(key)),
            Signing::Ed25519(pair) => Verifying::Ed25519(public_of(pair)),
        })
    }

    /// The text `whpk_…` for receivers; `None` for a secret, which has no
    /// public half.
    pub fn public_text(&self) -> Option<String> {
        match &self.0 {
            Signing::Hmac(_) => None,
            Signing::Ed25519(pair) => Some(format!("{PUBLIC}{}", BASE64.encode(public_of(pair)))),
        }
    }

    /// The signature over `parts`, one behind the other.
    pub(crate) fn sign(&self, parts: &[&[u8]]) -> Vec<u8> {
        match &self.0 {
            Signing::Hmac(key) => tag_of(key, parts).as_ref().to_vec(),
            Signing::Ed25519(pair) => pair.sign(&parts.concat()).as_ref().to_vec(),
        }
    }
}

impl VerifyingKey {
    pub(crate) fn tag(&self) -> &'static str {
        match self.0 {
            Verifying::Hmac(_) => "v1",
            Verifying::Ed25519(_) => "v1a",
        }
    }

    pub(crate) fn verifies(&self, parts: &[&[u8]], signature: &[u8]) -> bool {
        match &self.0 {
            Verifying::Hmac(key) => hmac_verifies(key, parts, signature),
            Verifying::Ed25519(public) => {
                UnparsedPublicKey::new(&ED25519, public).verify(&parts.concat(), signature).is_ok()
            }
        }
    }
}

/// Compares in a time that does not depend on where they differ.
pub(crate) fn hmac_verifies(key: &hmac::Key, parts: &[&[u8]], signature: &[u8]) -> bool {
    verify_slices_are_equal(tag_of(key, parts).as_ref(), signature).is_ok()
}

fn tag_of(key: &hmac::Key, parts: &[&[u8]]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    for part in parts {
        context.update(part);
    }
    context.sign()
}

fn public_of(pair: &Ed25519KeyPair) -> [u8; PUBLIC_BYTES] {
    pair.public_key().as_ref().try_into().expect("a public key of ed25519 has 32 bytes")
}

impl FromStr for SigningKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        if let Some(secret) = text.strip_prefix(SECRET) {
            return Ok(Self(Signing::Hmac(Arc::new(secret_of(secret)?))));
        }
        if text.starts_with(PUBLIC) {
            return Err(KeyError::Public);
        }
        let bytes = decode(text.strip_prefix(PRIVATE).ok_or(KeyError::Prefix)?)?;
        let pair = match bytes.len() {
            SEED_BYTES => Ed25519KeyPair::from_seed_unchecked(&bytes),
            len if len == SEED_BYTES + PUBLIC_BYTES => {
                let (seed, public) = bytes.split_at(SEED_BYTES);
                Ed25519KeyPair::from_seed_and_public_key(seed, public)
            }
            bytes => {
                let max = SEED_BYTES + PUBLIC_BYTES;
                return Err(KeyError::Length { bytes, min: SEED_BYTES, max });
            }
        };
        Ok(Self(Signing::Ed25519(Arc::new(pair.map_err(|_| KeyError::Halves)?))))
    }
}

impl FromStr for VerifyingKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        if let Some(secret) = text.strip_prefix(SECRET) {
            return Ok(Self(Verifying::Hmac(Arc::new(secret_of(secret)?))));
        }
        if text.starts_with(PRIVATE) {
            return Err(KeyError::Private);
        }
        let bytes = decode(text.strip_prefix(PUBLIC).ok_or(KeyError::Prefix)?)?;
        let (min, max) = (PUBLIC_BYTES, PUBLIC_BYTES);
        let public = <[u8; PUBLIC_BYTES]>::try_from(&*bytes).map_err(|_| KeyError::Length {
            bytes: bytes.len(),
            min,
            max,
        })?;
        Ok(Self(Verifying::Ed25519(public)))
    }
}

fn secret_of(text: &str) -> Result<hmac::Key, KeyError> {
    let secret = decode(text)?;
    let (min, max) = (SECRET_BYTES_MIN, SECRET_BYTES_MAX);
    if !(min..=max).contains(&secret.len()) {
        return Err(KeyError::Length { bytes: secret.len(), min, max });
    }
    Ok(hmac::Key::new(HMAC_SHA256, &secret))
}

fn decode(text: &str) -> Result<Vec<u8>, KeyError> {
    BASE64.decode(text).map_err(|_| KeyError::Base64)
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({}, ***)", self.tag())
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifyingKey({}, ***)", self.tag())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: &str = "VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=";

    fn with(prefix: &str, bytes: usize) -> String {
        format!("{prefix}{}", BASE64.encode(vec![7; bytes]))
    }

    #[test]
    fn a_key_is_what_its_prefix_says() {
        let secret: SigningKey = with("whsec_", 24).parse().unwrap();
        let private: SigningKey = format!("whsk_{SEED}").parse().unwrap();
        assert_eq!((secret.tag(), private.tag()), ("v1", "v1a"));
        assert_eq!(secret.public_text(), None);
        let public: VerifyingKey = private.public_text().unwrap().parse().unwrap();
        let signature = private.sign(&[b"a", b"b"]);
        assert!(public.verifies(&[b"ab"], &signature));
        assert!(!public.verifies(&[b"ac"], &signature));
        assert!(!public.verifies(&[b"ab"], &signature[1..]));
    }

    #[test]
    fn a_private_key_may_carry_its_public_half_if_it_fits() {
        let short: SigningKey = format!("whsk_{SEED}").parse().unwrap();
        let public = BASE64.decode(&short.public_text().unwrap()[PUBLIC.len()..]).unwrap();
        let mut both = [BASE64.decode(SEED).unwrap(), public].concat();
        let long: SigningKey = format!("whsk_{}", BASE64.encode(&both)).parse().unwrap();
        assert_eq!(short.sign(&[b"a"]), long.sign(&[b"a"]));
        both[40] ^= 1;
        let wrong = format!("whsk_{}", BASE64.encode(&both)).parse::<SigningKey>();
        assert_eq!(wrong.unwrap_err(), KeyError::Halves);
    }

    #[test]
    fn what_is_no_key_is_refused_and_says_why() {
        let length = |bytes, min, max| KeyError::Length { bytes, min, max };
        for (text, expected) in [
            (String::new(), KeyError::Prefix),
            ("C2FVsBQIhrscChlQIMV+b5sSYspob7oD".to_owned(), KeyError::Prefix),
            (with("whsec", 24), KeyError::Prefix),
            ("whsec_".to_owned(), length(0, 24, 64)),
            (with("whsec_", 23), length(23, 24, 64)),
            (with("whsec_", 65), length(65, 24, 64)),
            ("whsec_ä".to_owned(), KeyError::Base64),
            (with("whsec_", 24) + "\n", KeyError::Base64),
            (with("whpk_", 32), KeyError::Public),
            (with("whsk_", 31), length(31, 32, 64)),
            (with("whsk_", 48), length(48, 32, 64)),
        ] {
            assert_eq!(text.parse::<SigningKey>().unwrap_err(), expected, "{text}");
        }
        for (text, expected) in [
            (with("whsk_", 32), KeyError::Private),
            (with("whpk_", 31), length(31, 32, 32)),
            (with("whpk_", 33), length(33, 32, 32)),
            (with("whsec_", 23), length(23, 24, 64)),
        ] {
            assert_eq!(text.parse::<VerifyingKey>().unwrap_err(), expected, "{text}");
        }
        for bytes in [24, 64] {
            with("whsec_", bytes).parse::<SigningKey>().unwrap();
        }
        with("whsec_", 25).trim_end_matches('=').parse::<SigningKey>().unwrap();
    }

    #[test]
    fn no_key_is_printed() {
        let text = with("whsec_", 24);
        let inside = &text[SECRET.len()..];
        let key: SigningKey = text.parse().unwrap();
        let private: SigningKey = format!("whsk_{SEED}").parse().unwrap();
        let refused = format!("{text}!").parse::<SigningKey>().unwrap_err();
        for shown in [
            format!("{key:?} {:?}", key.verifying_key()),
            format!("{private:#?} {:?}", private.verifying_key()),
            format!("{refused:?} {refused}"),
        ] {
            assert!(!shown.contains(inside) && !shown.contains(&SEED[..8]), "{shown}");
        }
    }
}
