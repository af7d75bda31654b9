use std::time::Duration;

use crate::{KeyError, OnMismatch, Policy};

/// Media type of [`Problem::body`].
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Where the types of problems are described; each adds its name.
const TYPES: &str = "https://github.com/walpost/walpost/blob/main/docs/idempotency.md#";

/// An answer that is not the handler's, as RFC 9457 has it.
///
/// ```
/// use walpost_idempotency::{Policy, Problem};
///
/// let problem = Problem::InFlight { retry_after_s: 1 };
/// assert_eq!(problem.status(&Policy::new("POST /orders")), 409);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// 400: a key is required.
    KeyMissing,
    /// 400: the header is no key, or there are several.
    KeyInvalid(KeyError),
    /// 403: nobody is known whose key it could be.
    NoPrincipal,
    /// 400: the body ended before its time.
    BodyIncomplete,
    /// 413: the body is longer than the route takes.
    BodyTooLarge {
        /// How long it may be.
        max_bytes: usize,
    },
    /// 409 with Retry-After: the request is being carried out.
    InFlight {
        /// When to ask again, in seconds.
        retry_after_s: u64,
    },
    /// 409: the request was begun, and an operator has to find out how far it
    /// came.
    Unresolved,
    /// 422, or 409 by policy: another request has the key.
    Mismatch,
    /// 410: the request was carried out, or begun, and its key has expired.
    Gone,
    /// 503 with Retry-After: without the database nothing is done.
    StoreUnavailable {
        /// When to ask again, in seconds.
        retry_after_s: u64,
    },
    /// 503 with Retry-After: as many requests wait for their twins as may.
    Crowded {
        /// When to ask again, in seconds.
        retry_after_s: u64,
    },
    /// 503 with Retry-After: the handler took too long and was given up.
    TimedOut {
        /// When to ask again, in seconds.
        retry_after_s: u64,
    },
    /// 500: the handler failed, and nothing of it is left in the database.
    HandlerFailed,
    /// 500: the response is longer than can be stored, or has no end in time.
    ResponseTooLarge {
        /// How long it may be.
        max_bytes: usize,
    },
}

impl Problem {
    /// [`Problem::InFlight`], in whole seconds.
    pub fn in_flight(retry_after: Duration) -> Self {
        Self::InFlight { retry_after_s: seconds(retry_after) }
    }

    /// [`Problem::StoreUnavailable`], in whole seconds.
    pub fn store_unavailable(retry_after: Duration) -> Self {
        Self::StoreUnavailable { retry_after_s: seconds(retry_after) }
    }

    /// [`Problem::Crowded`], in whole seconds.
    pub fn crowded(retry_after: Duration) -> Self {
        Self::Crowded { retry_after_s: seconds(retry_after) }
    }

    /// [`Problem::TimedOut`], in whole seconds.
    pub fn timed_out(retry_after: Duration) -> Self {
        Self::TimedOut { retry_after_s: seconds(retry_after) }
    }

    /// Its status under a policy.
    pub fn status(&self, policy: &Policy) -> u16 {
        match self {
            Self::KeyMissing | Self::KeyInvalid(_) | Self::BodyIncomplete => 400,
            Self::NoPrincipal => 403,
            Self::InFlight { .. } | Self::Unresolved => 409,
            Self::Gone => 410,
            Self::BodyTooLarge { .. } => 413,
            Self::Mismatch => match policy.mismatch {
                OnMismatch::Unprocessable => 422,
                OnMismatch::Conflict => 409,
            },
            Self::HandlerFailed | Self::ResponseTooLarge { .. } => 500,
            Self::StoreUnavailable { .. } | Self::Crowded { .. } | Self::TimedOut { .. } => 503,
        }
    }

    /// The last part of its type, which never changes.
    pub fn name(&self) -> &'static str {
        match self {
            Self::KeyMissing => "key-missing",
            Self::KeyInvalid(_) => "key-invalid",
            Self::NoPrincipal => "no-principal",
            Self::BodyIncomplete => "body-incomplete",
            Self::BodyTooLarge { .. } => "body-too-large",
            Self::InFlight { .. } => "in-flight",
            Self::Unresolved => "unresolved",
            Self::Mismatch => "mismatch",
            Self::Gone => "gone",
            Self::StoreUnavailable { .. } => "store-unavailable",
            Self::Crowded { .. } => "crowded",
            Self::TimedOut { .. } => "timed-out",
            Self::HandlerFailed => "handler-failed",
            Self::ResponseTooLarge { .. } => "response-too-large",
        }
    }

    /// Seconds for the header `Retry-After`, where it has one.
    pub fn retry_after_s(&self) -> Option<u64> {
        match self {
            Self::InFlight { retry_after_s }
            | Self::StoreUnavailable { retry_after_s }
            | Self::Crowded { retry_after_s }
            | Self::TimedOut { retry_after_s } => Some(*retry_after_s),
            _ => None,
        }
    }

    /// The JSON object of RFC 9457: `type`, `title`, `status` and `detail`.
    pub fn body(&self, policy: &Policy) -> Vec<u8> {
        let members = serde_json::json!({
            "type": format!("{TYPES}{}", self.name()),
            "title": self.title(),
            "status": self.status(policy),
            "detail": self.detail(policy),
        });
        members.to_string().into_bytes()
    }

    fn title(&self) -> &'static str {
        match self {
            Self::KeyMissing => "An idempotency key is required",
            Self::KeyInvalid(_) => "The idempotency key is invalid",
            Self::NoPrincipal => "The request has no principal",
            Self::BodyIncomplete => "The request's body is incomplete",
            Self::BodyTooLarge { .. } => "The request's body is too large",
            Self::InFlight { .. } => "The request is being carried out",
            Self::Unresolved => "The request was begun and its outcome is not known",
            Self::Mismatch => "The idempotency key belongs to another request",
            Self::Gone => "The idempotency key has expired",
            Self::StoreUnavailable { .. } => "The request cannot be carried out now",
            Self::Crowded { .. } => "Too many requests wait for their twins",
            Self::TimedOut { .. } => "The request took too long",
            Self::HandlerFailed => "The request failed",
            Self::ResponseTooLarge { .. } => "The response is too large",
        }
    }

    fn detail(&self, policy: &Policy) -> String {
        match self {
            Self::KeyMissing => format!(
                "Send the header {} with a key that is new for each request and the same for its \
                 retries, a UUID say.",
                policy.header
            ),
            Self::KeyInvalid(error) => format!("{}: {error}.", policy.header),
            Self::NoPrincipal => "Keys are kept apart by who sends them.".to_owned(),
            Self::BodyIncomplete => "Nothing was done. Send the request again.".to_owned(),
            Self::BodyTooLarge { max_bytes } => {
                format!("It may have {max_bytes} bytes. Nothing was done.")
            }
            Self::InFlight { .. } => {
                "Ask again with the same key and the same request for its answer.".to_owned()
            }
            Self::Unresolved => {
                "A run of it ended without an answer. It is not carried out again before an \
                 operator has looked."
                    .to_owned()
            }
            Self::Mismatch => {
                "Method, path, query, content type or body are not those that the key was first \
                 used with. Nothing was done. Use a new key for a new request."
                    .to_owned()
            }
            Self::Gone => {
                "A request was carried out under it, or begun, and no answer of it is kept any \
                 more. Look whether it had its effect before you send it under a new key."
                    .to_owned()
            }
            Self::StoreUnavailable { .. } => {
                "Send it again with the same key: it is carried out once, whether or not it was."
                    .to_owned()
            }
            Self::Crowded { .. } => {
                "The request is being carried out. Ask again later with the same key.".to_owned()
            }
            Self::TimedOut { .. } => "Send it again with the same key.".to_owned(),
            Self::HandlerFailed => "Its key may be used again for the same request.".to_owned(),
            Self::ResponseTooLarge { max_bytes } => {
                format!("A response of more than {max_bytes} bytes cannot be kept for retries.")
            }
        }
    }
}

/// In whole seconds, 1 at least, rounded up.
fn seconds(duration: Duration) -> u64 {
    let up = u64::from(duration.subsec_nanos() > 0);
    (duration.as_secs() + up).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Problem; 14] = [
        Problem::KeyMissing,
        Problem::KeyInvalid(KeyError::Duplicate),
        Problem::NoPrincipal,
        Problem::BodyIncomplete,
        Problem::BodyTooLarge { max_bytes: 10 },
        Problem::InFlight { retry_after_s: 2 },
        Problem::Unresolved,
        Problem::Mismatch,
        Problem::Gone,
        Problem::StoreUnavailable { retry_after_s: 3 },
        Problem::Crowded { retry_after_s: 5 },
        Problem::TimedOut { retry_after_s: 4 },
        Problem::HandlerFailed,
        Problem::ResponseTooLarge { max_bytes: 10 },
    ];

    #[test]
    fn bodies_have_the_members_of_the_rfc_and_types_of_their_own() {
        let policy = Policy::new("r");
        let mut types = Vec::new();
        for problem in ALL {
            let body: serde_json::Value = serde_json::from_slice(&problem.body(&policy)).unwrap();
            assert_eq!(body["status"], problem.status(&policy), "{problem:?}");
            assert!(body["title"].is_string() && body["detail"].is_string(), "{problem:?}");
            types.push(body["type"].as_str().unwrap().to_owned());
        }
        types.sort();
        types.dedup();
        assert_eq!(types.len(), ALL.len());
        assert!(types.contains(&format!("{TYPES}in-flight")));
    }

    #[test]
    fn every_type_is_described() {
        let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/idempotency.md");
        let manual = std::fs::read_to_string(manual).unwrap();
        for problem in ALL {
            let heading = format!("\n### {}\n", problem.name());
            assert!(manual.contains(&heading), "{}", problem.name());
        }
    }

    #[test]
    fn a_mismatch_is_422_or_409() {
        let policy = Policy::new("r");
        assert_eq!(Problem::Mismatch.status(&policy), 422);
        let policy = policy.on_mismatch(OnMismatch::Conflict);
        assert_eq!(Problem::Mismatch.status(&policy), 409);
        assert!(Problem::Mismatch.body(&policy).windows(3).any(|text| text == b"409"));
    }

    #[test]
    fn what_passes_says_when_to_ask_again() {
        let with: Vec<u64> = ALL.iter().filter_map(Problem::retry_after_s).collect();
        assert_eq!(with, [2, 3, 5, 4]);
        for (millis, expected) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2)] {
            assert_eq!(seconds(Duration::from_millis(millis)), expected);
        }
    }
}
