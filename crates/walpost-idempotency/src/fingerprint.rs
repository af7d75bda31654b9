use std::fmt;

use crate::digest::{digest, hex};

/// A request as far as its fingerprint goes.
///
/// For calls other than HTTP: the method's full name as `route`, the encoded
/// message as `body`, the rest empty.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Request<'a> {
    /// `POST`.
    pub method: &'a str,
    /// The path as it was asked for, not its template: two orders are two
    /// requests.
    pub route: &'a str,
    /// Without `?`; empty where there is none.
    pub query: &'a str,
    /// The header `Content-Type`.
    pub content_type: Option<&'a [u8]>,
    /// As it was received.
    pub body: &'a [u8],
}

/// Tells a retry from another request under the same key: SHA-256 of method,
/// route, query, content type and body. Nothing of the request can be read back.
///
/// Parameters of the query may come in another order, those of the same name in
/// theirs; the media type may be written in another case. All else counts as it
/// was sent, byte by byte: a client repeats the body that it sent before, with
/// the same boundary where it has parts.
///
/// ```
/// use walpost_idempotency::{Fingerprint, Request};
///
/// let first = Request { method: "POST", route: "/orders", body: b"{}", ..Request::default() };
/// let other = Request { body: b"{ }", ..first };
/// assert_ne!(Fingerprint::of(&first), Fingerprint::of(&other));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of a request.
    pub fn of(request: &Request<'_>) -> Self {
        let query = in_order(request.query);
        let content_type = request.content_type.map(media_type);
        Self(digest(
            "walpost idempotency fingerprint",
            &[
                Some(request.method.as_bytes()),
                Some(request.route.as_bytes()),
                Some(query.as_bytes()),
                content_type.as_deref(),
                Some(request.body),
            ],
        ))
    }

    /// One that was stored.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({})", hex(&self.0))
    }
}

/// Does not show the body, nor what may stand in a query.
impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({}, body of {} bytes)", self.method, self.body.len())
    }
}

/// Sorted by name; the sort is stable, so that values of one name keep theirs.
fn in_order(query: &str) -> String {
    let mut pairs: Vec<&str> = query.split('&').filter(|pair| !pair.is_empty()).collect();
    pairs.sort_by_key(|pair| pair.split('=').next());
    pairs.join("&")
}

/// Type and subtype in lower case, parameters as they are.
fn media_type(value: &[u8]) -> Vec<u8> {
    let value = value.trim_ascii();
    let end = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
    let (essence, parameters) = value.split_at(end);
    [essence.trim_ascii().to_ascii_lowercase().as_slice(), parameters].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Request<'_> = Request {
        method: "POST",
        route: "/orders/1",
        query: "b=2&a=1&b=1",
        content_type: Some(b"application/json; charset=utf-8"),
        body: b"{}",
    };

    #[test]
    fn each_part_of_the_request_counts() {
        let others = [
            Request { method: "PATCH", ..ONE },
            Request { route: "/orders/2", ..ONE },
            Request { query: "", ..ONE },
            Request { query: "b=1&a=1&b=2", ..ONE },
            Request { content_type: None, ..ONE },
            Request { content_type: Some(b""), ..ONE },
            Request { content_type: Some(b"application/json; charset=utf-16"), ..ONE },
            Request { body: b"", ..ONE },
            Request { body: b"{}\n", ..ONE },
            Request { route: "/orders", query: "1b=2&a=1&b=1", ..ONE },
        ];
        for other in others {
            assert_ne!(Fingerprint::of(&other), Fingerprint::of(&ONE), "{other:?}");
        }
    }

    #[test]
    fn order_of_names_and_case_of_the_media_type_do_not() {
        let same = [
            Request { query: "a=1&b=2&b=1", ..ONE },
            Request { query: "&b=2&b=1&&a=1", ..ONE },
            Request { content_type: Some(b" Application/JSON ; charset=utf-8"), ..ONE },
        ];
        for other in same {
            assert_eq!(Fingerprint::of(&other), Fingerprint::of(&ONE), "{:?}", other.query);
        }
    }

    #[test]
    fn debug_shows_no_contents() {
        let text = format!("{:?}", Request { query: "token=x", body: b"secret", ..ONE });
        assert!(!text.contains("secret") && !text.contains("token"), "{text}");
    }
}
