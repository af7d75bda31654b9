use std::fmt;

use bytes::Bytes;

use crate::KeepError;

/// Headers that are stored unless a policy says otherwise.
pub(crate) const DEFAULT_HEADERS: [&str; 8] = [
    "content-type",
    "content-encoding",
    "content-language",
    "content-location",
    "etag",
    "last-modified",
    "link",
    "location",
];

/// Headers that are never stored: secrets, what belongs to one connection, and
/// what a replay has of its own.
const NEVER: [&str; 16] = [
    "set-cookie",
    "set-cookie2",
    "authorization",
    "proxy-authorization",
    "www-authenticate",
    "proxy-authenticate",
    "authentication-info",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "date",
    "content-length",
    "idempotent-replayed",
];

/// What was answered, as far as it is stored. `Debug` shows status and sizes
/// alone.
///
/// ```
/// use walpost_idempotency::Response;
///
/// let response = Response::new(201, "{\"id\":7}").header("location", "/orders/7");
/// assert_eq!(response.status(), 201);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Bytes,
}

impl Response {
    /// A status and a body. The status is that of HTTP, or any number from 0 to
    /// 999 that the application tells results by.
    pub fn new(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    /// A header; its name is stored in lower case.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.to_ascii_lowercase(), value.into()));
        self
    }

    /// The status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether the handler's writes stay, by its status as one of HTTP: 2xx and
    /// 3xx. Those of an error are undone, also where it is stored.
    pub fn has_effect(&self) -> bool {
        (200..400).contains(&self.status)
    }

    /// Names and values in their order.
    pub fn headers(&self) -> &[(String, Vec<u8>)] {
        &self.headers
    }

    /// The body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (headers, bytes) = (self.headers.len(), self.body.len());
        write!(f, "Response({}, {headers} headers, body of {bytes} bytes)", self.status)
    }
}

/// What is stored of which responses, and thereby which requests are over.
///
/// One that is not stored leaves its key free: in transactional mode its
/// transaction is rolled back, so the retry is the first request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Every response, as version 1 of Stripe's API does.
    All,
    /// 2xx and 3xx.
    Success,
    /// 2xx, 3xx and 4xx, but for those that ask for another attempt: 408, 425
    /// and 429.
    #[default]
    SuccessAndClientErrors,
}

impl Keep {
    /// Whether a response with this status is stored.
    pub fn keeps(self, status: u16) -> bool {
        match self {
            Self::All => true,
            Self::Success => (200..400).contains(&status),
            Self::SuccessAndClientErrors => {
                (200..500).contains(&status) && !matches!(status, 408 | 425 | 429)
            }
        }
    }
}

/// The name in lower case, if it may be stored.
pub(crate) fn storable(name: &str) -> Result<String, KeepError> {
    let name = name.to_ascii_lowercase();
    let is_secret = name.ends_with("-token") || name.ends_with("-secret");
    if is_secret || NEVER.contains(&&*name) { Err(KeepError { name }) } else { Ok(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_depends_on_the_status() {
        use Keep::{All, Success, SuccessAndClientErrors};
        for (status, kept_by) in [
            (200, &[All, Success, SuccessAndClientErrors][..]),
            (303, &[All, Success, SuccessAndClientErrors]),
            (400, &[All, SuccessAndClientErrors]),
            (402, &[All, SuccessAndClientErrors]),
            (408, &[All]),
            (425, &[All]),
            (429, &[All]),
            (500, &[All]),
            (503, &[All]),
        ] {
            for keep in [All, Success, SuccessAndClientErrors] {
                assert_eq!(keep.keeps(status), kept_by.contains(&keep), "{keep:?} {status}");
            }
        }
        for (status, expected) in [(199, false), (200, true), (302, true), (400, false)] {
            assert_eq!(Response::new(status, "").has_effect(), expected, "{status}");
        }
    }

    #[test]
    fn secrets_and_what_is_a_connections_own_are_not_stored() {
        for name in ["Set-Cookie", "authorization", "X-CSRF-Token", "Date", "Transfer-Encoding"] {
            assert!(storable(name).is_err(), "{name}");
        }
        assert_eq!(storable("X-Request-Id").unwrap(), "x-request-id");
        for name in DEFAULT_HEADERS {
            assert_eq!(storable(name).unwrap(), name);
        }
    }

    #[test]
    fn debug_shows_no_contents() {
        let text = format!("{:?}", Response::new(200, "secret").header("x", "secret"));
        assert!(!text.contains("secret"), "{text}");
    }
}
