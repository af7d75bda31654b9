use std::{
    fmt,
    time::{Duration, SystemTime},
};

use http::StatusCode;

/// What one attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver answered. Its status decides, whatever became of the body.
    Answered {
        /// The status.
        status: StatusCode,
        /// For how long it asks to be left alone: see [`retry_after`].
        retry_after: Option<Duration>,
    },
    /// There was no answer.
    Unanswered {
        /// Why.
        failure: Failure,
        /// Whether the receiver may have got the request all the same.
        sent: bool,
    },
}

/// Why there was no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// There was no time left.
    Timeout,
    /// The host's name leads to no address.
    Dns,
    /// An address or a port that nothing is sent to.
    Blocked,
    /// No connection could be made.
    Connect,
    /// No TLS could be agreed on, or the certificate is not the host's.
    Tls,
    /// The connection ended before the answer.
    Broken,
    /// What came is no HTTP.
    Malformed,
    /// The answer's head is larger than is read.
    TooLarge,
    /// The request could not be made of the message: a header cannot have that value, a
    /// path is none.
    Request,
    /// Whoever made the attempt did not write down what came of it.
    LeaseExpired,
}

impl Outcome {
    /// A short name that stays, for metrics and rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Answered { status, .. } => match status.as_u16() / 100 {
                2 => "success",
                3 => "http_3xx",
                4 => "http_4xx",
                5 => "http_5xx",
                _ => "http_other",
            },
            Self::Unanswered { failure, .. } => failure.name(),
        }
    }

    /// Whether nobody knows if the request had its effect: it may have arrived,
    /// and no answer says what became of it. An error of the receiver's that came
    /// in the midst of its work says nothing either, and a gateway's says that it
    /// had no answer, with 503 as well once the request was passed on.
    pub fn is_unknown(self) -> bool {
        match self {
            Self::Answered { status, .. } => {
                let refused = [StatusCode::NOT_IMPLEMENTED, StatusCode::HTTP_VERSION_NOT_SUPPORTED];
                status.is_server_error() && !refused.contains(&status)
            }
            Self::Unanswered { sent, .. } => sent,
        }
    }
}

impl Failure {
    /// A short name that stays.
    pub fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Dns => "dns",
            Self::Blocked => "blocked",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Broken => "broken",
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::Request => "request",
            Self::LeaseExpired => "lease_expired",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered { status, .. } => write!(f, "status {}", status.as_u16()),
            Self::Unanswered { failure, sent: false } => write!(f, "{}, not sent", failure.name()),
            Self::Unanswered { failure, sent: true } => write!(f, "{}", failure.name()),
        }
    }
}

/// What the header `retry-after` asks for at `now`: seconds, or a date in any of
/// the three forms (RFC 9110, 10.2.3). A time that has passed is 0; `None` where
/// it is neither.
pub fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More than fits is as long as anything.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn seconds_and_dates_are_read() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (value, expected) in [
            ("0", seconds(0)),
            ("120", seconds(120)),
            (" 7 ", seconds(7)),
            ("99999999999999999999999999", seconds(u64::MAX)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", seconds(0)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", seconds(60)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", seconds(60)),
            ("Sun Nov  6 08:50:37 1994", seconds(60)),
            ("Sat, 05 Nov 1994 08:49:37 GMT", seconds(0)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("+5", None),
            ("5 s", None),
            ("tomorrow", None),
        ] {
            assert_eq!(retry_after(value, now), expected, "{value}");
        }
    }

    #[test]
    fn an_outcome_is_unknown_where_an_effect_is_possible_and_not_denied() {
        let answered = |status: u16| Outcome::Answered {
            status: StatusCode::from_u16(status).unwrap(),
            retry_after: None,
        };
        for status in [500, 502, 503, 504, 507, 599] {
            assert!(answered(status).is_unknown(), "{status}");
        }
        for status in [200, 302, 400, 404, 408, 410, 429, 501, 505] {
            assert!(!answered(status).is_unknown(), "{status}");
        }
        for failure in [Failure::Timeout, Failure::Broken, Failure::Malformed] {
            assert!(Outcome::Unanswered { failure, sent: true }.is_unknown());
            assert!(!Outcome::Unanswered { failure, sent: false }.is_unknown());
        }
    }
}
