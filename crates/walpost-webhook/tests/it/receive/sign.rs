//! How senders sign.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine;
use walpost_webhook::{
    Encoding, HmacScheme, Sha, Signer, Verifier,
    receive::{Place, Source},
};

/// Of all of them, in their own ways.
pub(super) const KEY: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const OTHER_KEY: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

type Headers = Vec<(String, String)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    Standard,
    Stripe,
    Github,
    Slack,
    Shopify,
    /// With SHA-512 in base64, and a key in a header.
    Generic,
}

pub(super) const SENDERS: [Sender; 6] = [
    Sender::Standard,
    Sender::Stripe,
    Sender::Github,
    Sender::Slack,
    Sender::Shopify,
    Sender::Generic,
];

impl Sender {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Stripe => "stripe",
            Self::Github => "github",
            Self::Slack => "slack",
            Self::Shopify => "shopify",
            Self::Generic => "generic",
        }
    }

    pub(super) fn path(self) -> String {
        format!("/webhooks/{}", self.name())
    }

    /// Whether there is a time in what it signs.
    pub(super) fn is_timed(self) -> bool {
        matches!(self, Self::Standard | Self::Stripe | Self::Slack)
    }

    /// As it is configured.
    pub(super) fn source(self) -> Source {
        let name = self.name();
        match self {
            Self::Standard => Source::standard(name, [KEY.parse().unwrap()]),
            Self::Stripe => Source::stripe(name, [KEY]),
            Self::Github => Source::github(name, [KEY]),
            Self::Slack => Source::slack(name, [KEY]),
            Self::Shopify => Source::shopify(name, [KEY]),
            Self::Generic => Source::new(
                name,
                Verifier::hmac(scheme(), [KEY]),
                Place::Header("x-idempotency-key".parse().unwrap()),
                Place::pointer("/type"),
            ),
        }
    }

    pub(super) fn body(self, id: &str, kind: &str) -> String {
        match self {
            Self::Standard | Self::Generic => format!(r#"{{"type":"{kind}","data":{{"n":1}}}}"#),
            Self::Stripe => format!(r#"{{"id":"{id}","type":"{kind}","pending_webhooks":1}}"#),
            Self::Slack => format!(
                r#"{{"type":"event_callback","event_id":"{id}","event":{{"type":"{kind}"}}}}"#
            ),
            Self::Github | Self::Shopify => r#"{"n":1}"#.to_owned(),
        }
    }

    /// The id under which it is stored.
    pub(super) fn stored_id(self, id: &str, kind: &str) -> String {
        if self == Self::Shopify { format!("{kind}/{id}") } else { id.to_owned() }
    }

    pub(super) fn headers(self, id: &str, kind: &str, body: &[u8]) -> Headers {
        self.headers_at(id, kind, body, SystemTime::now())
    }

    pub(super) fn headers_at(self, id: &str, kind: &str, body: &[u8], at: SystemTime) -> Headers {
        self.signed(KEY, (id, kind), body, at)
    }

    pub(super) fn headers_of_another_key(self, id: &str, kind: &str, body: &[u8]) -> Headers {
        self.signed(OTHER_KEY, (id, kind), body, SystemTime::now())
    }

    fn signed(self, key: &str, (id, kind): (&str, &str), body: &[u8], at: SystemTime) -> Headers {
        let t = at.duration_since(UNIX_EPOCH).unwrap().as_secs().to_string();
        let hex = |parts: &[&[u8]]| hex(&mac(hmac::HMAC_SHA256, key, parts));
        let base64 = |sha| base64::engine::general_purpose::STANDARD.encode(mac(sha, key, &[body]));
        let headers: Vec<(&str, String)> = match self {
            Self::Standard => {
                let signer = Signer::new([key.parse().unwrap()]).unwrap();
                signer.sign(id, at, body).unwrap().headers().to_vec()
            }
            Self::Stripe => {
                let signature = hex(&[t.as_bytes(), b".", body]);
                vec![("Stripe-Signature", format!("t={t},v1={signature}"))]
            }
            Self::Github => vec![
                ("X-GitHub-Delivery", id.to_owned()),
                ("X-GitHub-Event", kind.to_owned()),
                ("X-Hub-Signature-256", format!("sha256={}", hex(&[body]))),
            ],
            Self::Slack => {
                let signature = hex(&[b"v0:", t.as_bytes(), b":", body]);
                vec![
                    ("X-Slack-Signature", format!("v0={signature}")),
                    ("X-Slack-Request-Timestamp", t),
                ]
            }
            Self::Shopify => vec![
                ("X-Shopify-Event-Id", id.to_owned()),
                ("X-Shopify-Topic", kind.to_owned()),
                ("X-Shopify-Hmac-Sha256", base64(hmac::HMAC_SHA256)),
            ],
            Self::Generic => vec![
                ("X-Idempotency-Key", id.to_owned()),
                ("X-Sign", format!("HMAC {}", base64(hmac::HMAC_SHA512))),
            ],
        };
        headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// So long ago, or with a sign so far ahead.
pub(super) fn seconds_ago(seconds: i64) -> SystemTime {
    let by = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { SystemTime::now() + by } else { SystemTime::now() - by }
}

fn scheme() -> HmacScheme {
    HmacScheme {
        header: "x-sign".parse().unwrap(),
        prefix: "HMAC ".to_owned(),
        sha: Sha::Sha512,
        encoding: Encoding::Base64,
    }
}

fn mac(sha: hmac::Algorithm, key: &str, parts: &[&[u8]]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(sha, key.as_bytes()), &parts.concat()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
