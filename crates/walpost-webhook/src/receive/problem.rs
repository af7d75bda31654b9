//! Answers that are not 200, as RFC 9457 has them.

use axum::{body::Body, response::Response};
use http::{
    HeaderValue, StatusCode,
    header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
};

/// Where the types of problems are described; each adds its name.
const TYPES: &str = "https://github.com/walpost/walpost/blob/main/docs/webhook-receiving.md#";
/// When to send it again.
const RETRY_AFTER_S: u64 = 5;

/// Why a request is not taken. No text of it has any of the request's contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// 405: it is no POST.
    Method,
    /// 413.
    BodyTooLarge { max_bytes: usize },
    /// 400: the body ended before its time.
    BodyIncomplete,
    /// 408: the body did not come in time.
    BodyLate,
    /// 401, with [`Rejection::problem`](crate::Rejection::problem).
    SignatureRefused { problem: &'static str },
    /// 400: the body is no JSON.
    NoJson,
    /// 400: what stands there is no text, or there more than once.
    Malformed { place: String },
    /// 400.
    IdMissing { place: String },
    /// 400.
    TypeMissing { place: String },
    /// 400: id, type or reference are longer than can be stored, or have a NUL.
    Unfit { detail: String },
    /// 409: the id has come with other contents.
    IdReused,
    /// 503 with Retry-After: too many at a time.
    Busy,
    /// 503 with Retry-After: the store is away.
    StoreUnavailable,
    /// 503 with Retry-After: it took too long.
    TimedOut,
    /// 500: the handler failed, and nothing is stored.
    HandlerFailed,
}

impl Problem {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::BodyIncomplete
            | Self::NoJson
            | Self::Malformed { .. }
            | Self::IdMissing { .. }
            | Self::TypeMissing { .. }
            | Self::Unfit { .. } => StatusCode::BAD_REQUEST,
            Self::SignatureRefused { .. } => StatusCode::UNAUTHORIZED,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyLate => StatusCode::REQUEST_TIMEOUT,
            Self::IdReused => StatusCode::CONFLICT,
            Self::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::HandlerFailed => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Busy | Self::StoreUnavailable | Self::TimedOut => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The last part of its type, which never changes.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Method => "method-not-allowed",
            Self::BodyTooLarge { .. } => "body-too-large",
            Self::BodyIncomplete => "body-incomplete",
            Self::BodyLate => "body-late",
            Self::SignatureRefused { .. } => "signature-refused",
            Self::NoJson => "no-json",
            Self::Malformed { .. } => "malformed",
            Self::IdMissing { .. } => "id-missing",
            Self::TypeMissing { .. } => "type-missing",
            Self::Unfit { .. } => "unfit",
            Self::IdReused => "id-reused",
            Self::Busy => "busy",
            Self::StoreUnavailable => "store-unavailable",
            Self::TimedOut => "timed-out",
            Self::HandlerFailed => "handler-failed",
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Self::Method => "Webhooks come by POST",
            Self::BodyTooLarge { .. } => "The body is too large",
            Self::BodyIncomplete => "The body ended early",
            Self::BodyLate => "The body did not come in time",
            Self::SignatureRefused { .. } => "The signature is refused",
            Self::NoJson => "The body is no JSON",
            Self::Malformed { .. } => "The request has not its form",
            Self::IdMissing { .. } => "The event has no id",
            Self::TypeMissing { .. } => "The event has no type",
            Self::Unfit { .. } => "The event cannot be stored",
            Self::IdReused => "Another event has this id",
            Self::Busy | Self::StoreUnavailable => "Not now",
            Self::TimedOut => "It took too long",
            Self::HandlerFailed => "It failed",
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::Method => "Nothing was done.".to_owned(),
            Self::BodyTooLarge { max_bytes } => {
                format!("It may have {max_bytes} bytes. Nothing was done.")
            }
            Self::BodyIncomplete | Self::BodyLate => "Nothing was done. Send it again.".to_owned(),
            Self::SignatureRefused { problem } => format!("{problem}. Nothing was done."),
            Self::NoJson => "Nothing was done.".to_owned(),
            Self::Malformed { place } => {
                format!("{place} is to be one text or whole number. Nothing was done.")
            }
            Self::IdMissing { place } | Self::TypeMissing { place } => {
                format!("It is looked for at {place}. Nothing was done.")
            }
            Self::Unfit { detail } => format!("{detail}. Nothing was done."),
            Self::IdReused => {
                "Its type or body are not those that the id first came with. Nothing \
                               was done. Give each event an id of its own."
                    .to_owned()
            }
            Self::Busy | Self::StoreUnavailable | Self::TimedOut => {
                "Send it again: it is taken once, whether or not it was.".to_owned()
            }
            Self::HandlerFailed => "Nothing is stored. Send it again.".to_owned(),
        }
    }

    pub(super) fn response(&self) -> Response {
        let status = self.status();
        let members = serde_json::json!({
            "type": format!("{TYPES}{}", self.name()),
            "title": self.title(),
            "status": status.as_u16(),
            "detail": self.detail(),
        });
        let mut response = Response::new(Body::from(members.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match status {
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
            }
            // RFC 9110, 15.5.2, asks for one; nobody has registered a name.
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Webhook-Signature"));
            }
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(ALLOW, HeaderValue::from_static("POST"));
            }
            // The rest of the body would be taken for the next request.
            StatusCode::REQUEST_TIMEOUT | StatusCode::PAYLOAD_TOO_LARGE => {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [Problem; 15] {
        let place = "header a".to_owned();
        [
            Problem::Method,
            Problem::BodyTooLarge { max_bytes: 10 },
            Problem::BodyIncomplete,
            Problem::BodyLate,
            Problem::SignatureRefused { problem: "signature_mismatch" },
            Problem::NoJson,
            Problem::Malformed { place: place.clone() },
            Problem::IdMissing { place: place.clone() },
            Problem::TypeMissing { place },
            Problem::Unfit { detail: "the event's id is too long".to_owned() },
            Problem::IdReused,
            Problem::Busy,
            Problem::StoreUnavailable,
            Problem::TimedOut,
            Problem::HandlerFailed,
        ]
    }

    #[test]
    fn every_problem_is_described_with_its_status() {
        let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/webhook-receiving.md");
        let manual = std::fs::read_to_string(manual).unwrap();
        let sections: Vec<&str> = manual.split("\n### ").collect();
        for problem in all() {
            let heading = format!("{}\n", problem.name());
            let section = sections.iter().find(|section| section.starts_with(&heading));
            let section = section.unwrap_or_else(|| panic!("{} has no heading", problem.name()));
            let status = problem.status().as_u16().to_string();
            assert!(section.contains(&status), "{}: {status}", problem.name());
        }
    }

    #[test]
    fn whoever_may_send_it_again_later_is_told_when() {
        for problem in all() {
            let response = problem.response();
            let is_later = response.status() == 503;
            assert_eq!(response.headers().contains_key(RETRY_AFTER), is_later, "{problem:?}");
            assert_eq!(response.status() == 401, response.headers().contains_key(WWW_AUTHENTICATE));
        }
    }
}
