//! Signatures of senders, checked over the bytes as they were received.

mod fields;
mod provider;
mod standard;

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use aws_lc_rs::hmac::{self, HMAC_SHA256, HMAC_SHA512};
use http::{HeaderMap, HeaderName};

use crate::{VerifyingKey, sign::unix_seconds};

/// How far a sender's clock may be from ours, unless set.
const TOLERANCE: Duration = Duration::from_secs(300);

/// Checks that a request comes from whom it should, unchanged and of now.
///
/// The body is taken as it was received: whatever parses it and writes it again
/// breaks its signature. Secrets are compared in constant time. With several
/// keys any may fit, so that a sender can replace one.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// use http::HeaderMap;
/// use walpost_webhook::{Rejection, Verifier};
///
/// let verifier = Verifier::github(["It's a Secret to Everybody"]);
/// let mut headers = HeaderMap::new();
/// let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
/// let refused = verifier.verify(&headers, b"Hello, World!", now).unwrap_err();
/// assert_eq!(refused.problem(), "missing_header");
///
/// headers.insert(
///     "x-hub-signature-256",
///     "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17".parse()?,
/// );
/// verifier.verify(&headers, b"Hello, World!", now)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Verifier {
    scheme: Scheme,
    tolerance: Duration,
}

/// The closed set of ways.
#[derive(Clone)]
enum Scheme {
    Standard(Vec<VerifyingKey>),
    Stripe(Vec<hmac::Key>),
    Slack(Vec<hmac::Key>),
    Plain(HmacScheme, Vec<hmac::Key>),
}

/// One header with an HMAC over the body alone, as many senders have it.
///
/// There is no time in it: a request that was recorded may be sent again at any
/// time, and only its id, looked up where ids are kept, says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HmacScheme {
    /// The header.
    pub header: HeaderName,
    /// What stands before the signature in it, such as `sha256=`; often nothing.
    pub prefix: String,
    /// The hash.
    pub sha: Sha,
    /// How bytes are written.
    pub encoding: Encoding,
}

/// A hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sha {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

/// How the bytes of a signature are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Two digits for each, in either case.
    Hex,
    /// In the alphabet with `+` and `/`, with or without padding.
    Base64,
}

/// What a signature covers beside the body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// The message's id, the same with each attempt; `None` where the scheme
    /// signs none.
    pub id: Option<String>,
    /// When the attempt was signed, in seconds since 1970; `None` where the
    /// scheme signs no time.
    pub timestamp_seconds: Option<u64>,
}

/// The request is not what it should be. No text of this has any of its
/// contents; a sender should not be told more than [`Rejection::problem`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// A header is missing.
    #[error("header {header} is missing")]
    MissingHeader {
        /// Its name.
        header: HeaderName,
    },
    /// A header is there more than once, and nobody says which one holds.
    #[error("header {header} is there more than once")]
    DuplicateHeader {
        /// Its name.
        header: HeaderName,
    },
    /// A header is not of the form it should have.
    #[error("header {header} has not the form that its scheme gives it")]
    MalformedHeader {
        /// Its name.
        header: HeaderName,
    },
    /// The signature is from too long ago: a request that was kept, or a clock
    /// that is slow.
    #[error("the request was signed {seconds} s ago, at most {max_seconds} s are tolerated")]
    TooOld {
        /// How long ago.
        seconds: u64,
        /// How long at most.
        max_seconds: u64,
    },
    /// The signature is from the future: a clock is wrong, the sender's or ours.
    #[error("the request was signed {seconds} s ahead, at most {max_seconds} s are tolerated")]
    TooNew {
        /// How far ahead.
        seconds: u64,
        /// How far at most.
        max_seconds: u64,
    },
    /// There are signatures, and none of a kind that the keys check.
    #[error("header {header} has no signature of a kind that the keys here check")]
    NoKnownSignature {
        /// Its name.
        header: HeaderName,
    },
    /// No signature fits: another key, or another body.
    #[error("no signature fits the body under any of the keys")]
    Mismatch,
}

impl Rejection {
    /// A short name that stays: for metrics, and for whoever sent it.
    pub fn problem(&self) -> &'static str {
        match self {
            Self::MissingHeader { .. } => "missing_header",
            Self::DuplicateHeader { .. } => "duplicate_header",
            Self::MalformedHeader { .. } => "malformed_header",
            Self::TooOld { .. } => "timestamp_too_old",
            Self::TooNew { .. } => "timestamp_too_new",
            Self::NoKnownSignature { .. } => "no_known_signature",
            Self::Mismatch => "signature_mismatch",
        }
    }
}

impl Verifier {
    /// Standard Webhooks, `v1` and `v1a`: headers `webhook-id`,
    /// `webhook-timestamp` and `webhook-signature`.
    pub fn standard(keys: impl IntoIterator<Item = VerifyingKey>) -> Self {
        Self::of(Scheme::Standard(keys.into_iter().collect()))
    }

    /// Stripe: header `stripe-signature` with `t=…,v1=…`. A secret is the whole
    /// text that Stripe shows, `whsec_` with it.
    pub fn stripe(secrets: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        Self::of(Scheme::Stripe(keys(secrets, Sha::Sha256)))
    }

    /// GitHub: header `x-hub-signature-256`, which has no time.
    pub fn github(secrets: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        Self::hmac(HmacScheme::github(), secrets)
    }

    /// Slack: headers `x-slack-signature` and `x-slack-request-timestamp`.
    pub fn slack(secrets: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        Self::of(Scheme::Slack(keys(secrets, Sha::Sha256)))
    }

    /// Shopify: header `x-shopify-hmac-sha256`, which has no time.
    pub fn shopify(secrets: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        Self::hmac(HmacScheme::shopify(), secrets)
    }

    /// Any other sender with one header.
    pub fn hmac(scheme: HmacScheme, secrets: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        let keys = keys(secrets, scheme.sha);
        Self::of(Scheme::Plain(scheme, keys))
    }

    fn of(scheme: Scheme) -> Self {
        Self { scheme, tolerance: TOLERANCE }
    }

    /// How far the sender's clock may be from ours in either direction, in whole
    /// seconds; 300 s unless set. Nothing where the scheme has no time.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Whether anything could fit.
    #[cfg(feature = "receive")]
    pub(crate) fn has_keys(&self) -> bool {
        match &self.scheme {
            Scheme::Standard(keys) => !keys.is_empty(),
            Scheme::Stripe(keys) | Scheme::Slack(keys) | Scheme::Plain(_, keys) => !keys.is_empty(),
        }
    }

    /// Checks a request that came at `now`.
    ///
    /// # Errors
    /// When it is not to be trusted; without any key it never is.
    pub fn verify(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: SystemTime,
    ) -> Result<Verified, Rejection> {
        let window = Window { now: unix_seconds(now), max_seconds: self.tolerance.as_secs() };
        match &self.scheme {
            Scheme::Standard(keys) => standard::verify(keys, headers, body, window),
            Scheme::Stripe(keys) => provider::stripe(keys, headers, body, window),
            Scheme::Slack(keys) => provider::slack(keys, headers, body, window),
            Scheme::Plain(scheme, keys) => provider::plain(scheme, keys, headers, body),
        }
    }
}

impl HmacScheme {
    fn github() -> Self {
        Self {
            header: HeaderName::from_static("x-hub-signature-256"),
            prefix: "sha256=".to_owned(),
            sha: Sha::Sha256,
            encoding: Encoding::Hex,
        }
    }

    fn shopify() -> Self {
        Self {
            header: HeaderName::from_static("x-shopify-hmac-sha256"),
            prefix: String::new(),
            sha: Sha::Sha256,
            encoding: Encoding::Base64,
        }
    }
}

fn keys(secrets: impl IntoIterator<Item: AsRef<[u8]>>, sha: Sha) -> Vec<hmac::Key> {
    let algorithm = match sha {
        Sha::Sha256 => HMAC_SHA256,
        Sha::Sha512 => HMAC_SHA512,
    };
    // With an empty secret anybody could sign.
    let secrets = secrets.into_iter().filter(|secret| !secret.as_ref().is_empty());
    secrets.map(|secret| hmac::Key::new(algorithm, secret.as_ref())).collect()
}

/// What times are accepted.
#[derive(Clone, Copy, Debug)]
struct Window {
    now: u64,
    max_seconds: u64,
}

impl Window {
    fn check(self, signed: u64) -> Result<(), Rejection> {
        let Self { now, max_seconds } = self;
        let (ago, ahead) = (now.saturating_sub(signed), signed.saturating_sub(now));
        match (ago > max_seconds, ahead > max_seconds) {
            (true, _) => Err(Rejection::TooOld { seconds: ago, max_seconds }),
            (_, true) => Err(Rejection::TooNew { seconds: ahead, max_seconds }),
            (false, false) => Ok(()),
        }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, keys) = match &self.scheme {
            Scheme::Standard(keys) => ("Standard", keys.len()),
            Scheme::Stripe(keys) => ("Stripe", keys.len()),
            Scheme::Slack(keys) => ("Slack", keys.len()),
            Scheme::Plain(scheme, keys) => (scheme.header.as_str(), keys.len()),
        };
        write!(f, "Verifier({scheme}, {keys} keys, {:?})", self.tolerance)
    }
}

#[cfg(test)]
mod tests;
