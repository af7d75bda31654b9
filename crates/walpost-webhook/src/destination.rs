use std::{
    borrow::Cow,
    fmt::{self, Write},
    time::SystemTime,
};

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use crate::{
    Endpoint, EndpointError, KeyError, Request, Secret, SecretError, SignError, Signer, SigningKey,
    sign::{ID_BYTES_MAX, is_id},
};

/// The header of the key, unless set.
const KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("walpost/", env!("CARGO_PKG_VERSION")));

/// Where messages go, and how they are sent.
///
/// ```
/// use std::time::SystemTime;
/// use walpost_webhook::{AddressPolicy, Destination, Endpoint, Message, Secret};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let endpoint = Endpoint::parse("https://logistics.example/webhooks", AddressPolicy::public())?;
/// let mut destination = Destination::new(endpoint);
/// destination.key_headers = vec!["x-idempotency-key".parse()?];
/// destination.token = Some(Secret::Text("t0k3n".to_owned()));
///
/// let message = Message::new("invoice.paid:7:1", br#"{"invoice":7}"#.as_slice());
/// let request = destination.request(&message, SystemTime::now()).await?;
/// assert_eq!(request.headers["x-idempotency-key"], "invoice.paid:7:1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Destination {
    /// Where to; the path of a message goes behind its own.
    pub endpoint: Endpoint,
    /// `POST` unless set.
    pub method: Method,
    /// Sent with each message.
    pub headers: HeaderMap,
    /// Headers that carry the message's key; `idempotency-key` unless set.
    pub key_headers: Vec<HeaderName>,
    /// Sent as `authorization: Bearer …`.
    pub token: Option<Secret>,
    /// Keys of Standard Webhooks to sign with, the current one first; none for no
    /// signature.
    pub signing_keys: Vec<Secret>,
}

/// What is to be sent, the same with each attempt.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// What the receiver knows it by, however often it comes.
    pub key: String,
    /// Path and query behind those of the destination.
    pub path: Option<String>,
    /// `application/json` unless set.
    pub content_type: Option<String>,
    /// As it is.
    pub body: Bytes,
}

/// What of a request is secret.
pub(crate) struct Secrets {
    token: Option<HeaderValue>,
    signer: Option<Signer>,
}

/// A message cannot be made a request. No text of this has a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// A secret cannot be read.
    #[error("a secret of the destination cannot be read")]
    Secret(#[from] SecretError),
    /// A key to sign with is none.
    #[error("a signing key of the destination cannot be used")]
    Key(#[from] KeyError),
    /// The message cannot be signed.
    #[error("the message cannot be signed")]
    Sign(#[from] SignError),
    /// The path of the message is none.
    #[error("the message's path cannot be used")]
    Path(#[from] EndpointError),
    /// A header cannot have its value.
    #[error("header {header} cannot have the value that it should; it may be visible ASCII alone")]
    Header {
        /// Its name.
        header: HeaderName,
    },
}

impl RequestError {
    /// Whether it is the destination's secrets that cannot be used, so that no message can
    /// be sent there: a [`Processor`](crate::Processor) counts no attempt then.
    pub fn is_of_secrets(&self) -> bool {
        match self {
            Self::Secret(_) | Self::Key(_) | Self::Sign(SignError::Keys { .. }) => true,
            Self::Header { header } => *header == header::AUTHORIZATION,
            Self::Sign(_) | Self::Path(_) => false,
        }
    }
}

impl Message {
    /// A message of JSON to the destination's own path.
    pub fn new(key: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { key: key.into(), path: None, content_type: None, body: body.into() }
    }
}

impl Destination {
    /// By `POST`, with the key in `idempotency-key`, and no signature.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            method: Method::POST,
            headers: HeaderMap::new(),
            key_headers: vec![KEY_HEADER],
            token: None,
            signing_keys: Vec::new(),
        }
    }

    /// The request of one attempt, signed at `at`, with token and keys as they
    /// are now.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn request(
        &self,
        message: &Message,
        at: SystemTime,
    ) -> Result<Request, RequestError> {
        let endpoint = match &message.path {
            Some(path) => self.endpoint.at_path(path)?,
            None => self.endpoint.clone(),
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, USER_AGENT);
        headers.insert(header::CONTENT_TYPE, JSON);
        headers.extend(self.headers.clone());
        if let Some(content_type) = &message.content_type {
            headers.insert(header::CONTENT_TYPE, value(&header::CONTENT_TYPE, content_type)?);
        }
        for name in &self.key_headers {
            headers.insert(name, value(name, &message.key)?);
        }
        let secrets = self.read_secrets().await?;
        if let Some(token) = secrets.token {
            headers.insert(header::AUTHORIZATION, token);
        }
        if let Some(signer) = secrets.signer {
            let signature = signer.sign(&signed_id(&message.key), at, &message.body)?;
            for (name, text) in signature.headers() {
                let name = HeaderName::from_static(name);
                headers.insert(&name, value(&name, &text)?);
            }
        }
        Ok(Request { endpoint, method: self.method.clone(), headers, body: message.body.clone() })
    }

    /// Token and keys as they are now.
    pub(crate) async fn read_secrets(&self) -> Result<Secrets, RequestError> {
        let mut token = None;
        if let Some(secret) = &self.token {
            let text = format!("Bearer {}", secret.read().await?);
            let mut header = value(&header::AUTHORIZATION, &text)?;
            header.set_sensitive(true);
            token = Some(header);
        }
        let mut keys = Vec::new();
        for secret in &self.signing_keys {
            keys.push(secret.read().await?.parse::<SigningKey>()?);
        }
        let signer = if keys.is_empty() { None } else { Some(Signer::new(keys)?) };
        Ok(Secrets { token, signer })
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Of headers the names alone: a value may be a secret.
        f.debug_struct("Destination")
            .field("endpoint", &self.endpoint)
            .field("method", &self.method)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("key_headers", &self.key_headers)
            .field("token", &self.token)
            .field("signing_keys", &self.signing_keys)
            .finish()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("body_bytes", &self.body.len()).finish_non_exhaustive()
    }
}

fn value(header: &HeaderName, text: &str) -> Result<HeaderValue, RequestError> {
    // Other bytes mean something else to each receiver.
    let fit = HeaderValue::from_str(text).ok().filter(|_| text.is_ascii());
    fit.ok_or_else(|| RequestError::Header { header: header.clone() })
}

/// The `webhook-id` for a key: the key itself, or with what a signature does not
/// bind written as %2E and the like; where that is too long, its SHA-256.
fn signed_id(key: &str) -> Cow<'_, str> {
    if is_id(key.as_bytes()) && !key.contains('%') {
        return Cow::Borrowed(key);
    }
    let mut id = String::new();
    for byte in key.bytes() {
        if byte.is_ascii_graphic() && !matches!(byte, b'.' | b'%') {
            id.push(char::from(byte));
        } else {
            let _ = write!(id, "%{byte:02X}");
        }
    }
    if id.len() > ID_BYTES_MAX || id.is_empty() {
        id = digest(&SHA256, key.as_bytes()).as_ref().iter().fold(
            "sha256-".to_owned(),
            |mut id, byte| {
                let _ = write!(id, "{byte:02x}");
                id
            },
        );
    }
    Cow::Owned(id)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::{AddressPolicy, Verifier};

    const KEY: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

    fn destination() -> Destination {
        let policy = AddressPolicy::public();
        Destination::new(Endpoint::parse("https://example.com/hooks", policy).unwrap())
    }

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_700_000_000)
    }

    #[tokio::test]
    async fn a_message_becomes_a_request_with_its_key_path_and_body() {
        let mut destination = destination();
        destination.headers.insert("x-shop", "7".parse().unwrap());
        destination.key_headers.push("x-idempotency-key".parse().unwrap());
        let mut message = Message::new("a.b:1", "{}");
        let plain = destination.request(&message, now()).await.unwrap();
        assert_eq!(plain.endpoint.to_string(), "https://example.com/hooks");
        assert_eq!((plain.method.as_str(), &*plain.body), ("POST", &b"{}"[..]));
        for (name, value) in [
            ("content-type", "application/json"),
            ("x-shop", "7"),
            ("idempotency-key", "a.b:1"),
            ("x-idempotency-key", "a.b:1"),
            ("user-agent", concat!("walpost/", env!("CARGO_PKG_VERSION"))),
        ] {
            assert_eq!(plain.headers[name], value, "{name}");
        }
        assert_eq!(plain.headers.len(), 5);
        message.path = Some("/invoice?x=1".to_owned());
        message.content_type = Some("application/cloudevents+json".to_owned());
        let other = destination.request(&message, now()).await.unwrap();
        assert_eq!(other.endpoint.to_string(), "https://example.com/hooks/invoice?x=1");
        assert_eq!(other.headers["content-type"], "application/cloudevents+json");
    }

    #[tokio::test]
    async fn a_token_and_a_key_are_read_again_for_each_attempt() {
        let folder = tempfile::tempdir().unwrap();
        let (token, key) = (folder.path().join("token"), folder.path().join("key"));
        let mut destination = destination();
        destination.token = Some(Secret::File(token.clone()));
        destination.signing_keys = vec![Secret::File(key.clone())];
        let message = Message::new("invoice.paid:7", "{}");
        let next = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwGhbwRVTlrpY=";
        for (token_text, key_text) in [("one", KEY), ("two\n", next)] {
            std::fs::write(&token, token_text).unwrap();
            std::fs::write(&key, key_text).unwrap();
            let request = destination.request(&message, now()).await.unwrap();
            let expected = format!("Bearer {}", token_text.trim());
            assert_eq!(request.headers["authorization"], *expected);
            assert!(!format!("{:?}", request.headers).contains(token_text.trim()));
            let verifying = key_text.parse::<SigningKey>().unwrap().verifying_key();
            let verified = Verifier::standard([verifying]).verify(&request.headers, b"{}", now());
            assert_eq!(verified.unwrap().id.as_deref(), Some("invoice%2Epaid:7"));
        }
        std::fs::remove_file(&token).unwrap();
        let missing = destination.request(&message, now()).await.unwrap_err();
        assert!(matches!(missing, RequestError::Secret(_)));
    }

    #[tokio::test]
    async fn what_no_header_can_carry_is_refused_without_its_text() {
        for (key, token) in [("a\nb", "t"), ("a", "secret\r\nx-evil: 1"), ("a", "s\u{fc}")] {
            let mut destination = destination();
            destination.token = Some(Secret::Text(token.to_owned()));
            let refused = destination.request(&Message::new(key, ""), now()).await.unwrap_err();
            assert!(matches!(refused, RequestError::Header { .. }), "{refused}");
            assert!(!format!("{refused} {refused:?}").contains("secret"));
        }
        let mut destination = destination();
        destination.signing_keys = vec![Secret::Text("whpk_AAAA".to_owned())];
        let refused = destination.request(&Message::new("a", ""), now()).await.unwrap_err();
        assert!(matches!(refused, RequestError::Key(KeyError::Public)));
        let message = Message { path: Some("/../x".to_owned()), ..Message::new("a", "") };
        let refused = self::destination().request(&message, now()).await.unwrap_err();
        assert!(matches!(refused, RequestError::Path(EndpointError::Path)));
    }

    #[test]
    fn nothing_secret_is_printed() {
        let endpoint = "https://hooks.example/s3cr3t?s3cr3t";
        let endpoint = Endpoint::parse(endpoint, AddressPolicy::public()).unwrap();
        let mut destination = Destination::new(endpoint);
        destination.headers.insert("x-token", "s3cr3t".parse().unwrap());
        destination.token = Some(Secret::Text("s3cr3t".to_owned()));
        let message = Message::new("s3cr3t", "s3cr3t");
        let shown = format!("{destination:?} {message:?}");
        assert!(shown.contains("hooks.example") && !shown.contains("s3cr3t"), "{shown}");
    }

    #[test]
    fn each_key_has_an_id_of_its_own_that_can_be_signed() {
        let long = "a.".repeat(200);
        for (key, id) in [
            ("0192-ab_c", "0192-ab_c"),
            ("invoice.paid:7:1", "invoice%2Epaid:7:1"),
            ("invoice%2Epaid:7:1", "invoice%252Epaid:7:1"),
            ("ä b", "%C3%A4%20b"),
        ] {
            assert_eq!(signed_id(key), id);
        }
        for key in ["", &*long, "\u{1f600}"] {
            assert!(is_id(signed_id(key).as_bytes()), "{key}");
        }
        assert_eq!(signed_id(&long).len(), 71);
    }
}
