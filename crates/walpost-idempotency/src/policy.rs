use std::time::Duration;

use crate::{
    Keep, KeepError, KeySyntax, ScopeBy,
    response::{DEFAULT_HEADERS, storable},
};

/// Longest name of a route, in bytes.
pub(crate) const ROUTE_MAX_BYTES: usize = 200;
const TTL_MIN: Duration = Duration::from_secs(60);
const TTL_MAX: Duration = Duration::from_secs(72 * 3_600);
const TOMBSTONE_MAX: Duration = Duration::from_secs(365 * 86_400);
const WAITING_MAX: usize = 100_000;
const BODY_MAX_BYTES: usize = 64 * 1_024 * 1_024;

/// What a request gets whose twin is running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InFlight {
    /// 409 at once, with Retry-After.
    #[default]
    Conflict,
    /// The twin's answer, once it is there; 409 after [`Policy::wait_max`], and 503
    /// where [`Policy::waiting_max`] wait already.
    Wait,
}

/// What a key is worth once its response has expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterExpiry {
    /// The request is a new one.
    #[default]
    New,
    /// 410, as long as a tombstone of the key is kept; then a new one. Also where
    /// the request was begun under a lease and nobody ended it: it may have had
    /// its effect.
    Gone,
}

/// What a request gets that uses the key of another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMismatch {
    /// 422.
    #[default]
    Unprocessable,
    /// 409.
    Conflict,
}

/// What a request gets when the database cannot be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// 503: nothing is done that could be done twice.
    #[default]
    Closed,
    /// The handler runs unprotected, and is counted. For routes whose effects
    /// may come twice.
    Open,
}

/// How a claim is held while the handler runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// By the transaction of the handler's own writes: claim, writes and stored
    /// response commit together or not at all.
    #[default]
    Transactional,
    /// By a committed row under a lease, for handlers that call others: what
    /// those did cannot be rolled back.
    Leased,
}

/// What a retry does when the lease of a run before it has ended, and nobody
/// knows how far that came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overtake {
    /// It goes on behind the last recovery point.
    #[default]
    Resume,
    /// It begins anew.
    Rerun,
    /// It gets 409 until an operator has looked.
    Refuse,
}

/// How requests of one route are treated.
///
/// ```
/// use std::time::Duration;
/// use walpost_idempotency::{AfterExpiry, InFlight, Policy};
///
/// let policy = Policy::new("POST /orders")
///     .in_flight(InFlight::Wait)
///     .after_expiry(AfterExpiry::Gone)
///     .ttl(Duration::from_secs(72 * 3_600));
/// policy.check()?;
/// # Ok::<(), walpost_idempotency::PolicyError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Policy {
    pub(crate) route: String,
    pub(crate) mode: Mode,
    pub(crate) scope: ScopeBy,
    pub(crate) syntax: KeySyntax,
    pub(crate) header: String,
    pub(crate) key_required: bool,
    pub(crate) methods: Vec<String>,
    pub(crate) in_flight: InFlight,
    pub(crate) retry_after: Duration,
    pub(crate) wait_max: Duration,
    pub(crate) waiting_max: usize,
    pub(crate) after_expiry: AfterExpiry,
    pub(crate) mismatch: OnMismatch,
    pub(crate) keep: Keep,
    pub(crate) headers: Vec<String>,
    pub(crate) request_max_bytes: usize,
    pub(crate) response_max_bytes: usize,
    pub(crate) ttl: Duration,
    pub(crate) tombstone: Duration,
    pub(crate) on_store_failure: OnStoreFailure,
    pub(crate) handler_timeout: Duration,
    pub(crate) lease: Duration,
    pub(crate) overtake: Overtake,
}

/// A policy that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("setting {setting} of the route's policy: {problem}")]
pub struct PolicyError {
    /// The method of [`Policy`].
    pub setting: &'static str,
    /// What is wrong and what to do.
    pub problem: &'static str,
}

impl Policy {
    /// For the route of this name, 1 to 200 bytes, such as `POST /orders`. It
    /// stands in the table and as a label of metrics, so let it be one of few:
    /// the template of a path, not the path.
    pub fn new(route: impl Into<String>) -> Self {
        Self {
            route: route.into(),
            mode: Mode::default(),
            scope: ScopeBy::default(),
            syntax: KeySyntax::default(),
            header: "idempotency-key".to_owned(),
            key_required: true,
            methods: vec!["POST".to_owned(), "PATCH".to_owned()],
            in_flight: InFlight::default(),
            retry_after: Duration::from_secs(1),
            wait_max: Duration::from_secs(10),
            waiting_max: 1_000,
            after_expiry: AfterExpiry::default(),
            mismatch: OnMismatch::default(),
            keep: Keep::default(),
            headers: DEFAULT_HEADERS.map(str::to_owned).to_vec(),
            request_max_bytes: 1_024 * 1_024,
            response_max_bytes: 1_024 * 1_024,
            ttl: Duration::from_secs(24 * 3_600),
            tombstone: Duration::from_secs(30 * 86_400),
            on_store_failure: OnStoreFailure::default(),
            handler_timeout: Duration::from_secs(30),
            lease: Duration::from_secs(60),
            overtake: Overtake::default(),
        }
    }

    /// How a claim is held; [`Mode::Transactional`] unless set.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Whose keys are kept apart; [`ScopeBy::PrincipalAndRoute`] unless set.
    pub fn scope(mut self, scope: ScopeBy) -> Self {
        self.scope = scope;
        self
    }

    /// How the header may be written; [`KeySyntax::Lenient`] unless set.
    pub fn key_syntax(mut self, syntax: KeySyntax) -> Self {
        self.syntax = syntax;
        self
    }

    /// Name of the header; `Idempotency-Key` unless set.
    pub fn key_header(mut self, name: &str) -> Self {
        self.header = name.to_ascii_lowercase();
        self
    }

    /// Requests without a key are served, each as a request of its own; 400
    /// unless set.
    pub fn key_optional(mut self) -> Self {
        self.key_required = false;
        self
    }

    /// Methods whose requests are concerned, in upper case; POST and PATCH unless
    /// set. Others pass untouched.
    pub fn methods(mut self, methods: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.methods = methods.into_iter().map(Into::into).collect();
        self
    }

    /// What a concurrent twin gets; [`InFlight::Conflict`] unless set.
    pub fn in_flight(mut self, in_flight: InFlight) -> Self {
        self.in_flight = in_flight;
        self
    }

    /// Retry-After of a 409 whose twin holds no lease, and of a 503; 1 s unless
    /// set, at least that, and sent in whole seconds.
    pub fn retry_after(mut self, retry_after: Duration) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// How long [`InFlight::Wait`] waits; 10 s unless set.
    pub fn wait_max(mut self, wait_max: Duration) -> Self {
        self.wait_max = wait_max;
        self
    }

    /// How many requests of a layer wait at a time under [`InFlight::Wait`]; 1,000
    /// unless set, at most 100,000. Beyond it is 503 with Retry-After. Each holds
    /// its body, and ends with its client.
    pub fn waiting_max(mut self, requests: usize) -> Self {
        self.waiting_max = requests;
        self
    }

    /// What a key is worth once expired; [`AfterExpiry::New`] unless set.
    pub fn after_expiry(mut self, after_expiry: AfterExpiry) -> Self {
        self.after_expiry = after_expiry;
        self
    }

    /// What another request under the same key gets;
    /// [`OnMismatch::Unprocessable`] unless set.
    pub fn on_mismatch(mut self, mismatch: OnMismatch) -> Self {
        self.mismatch = mismatch;
        self
    }

    /// Which responses are stored; [`Keep::SuccessAndClientErrors`] unless set.
    pub fn keep(mut self, keep: Keep) -> Self {
        self.keep = keep;
        self
    }

    /// A further header that is stored with a response. Unless set those are
    /// `content-type`, `-encoding`, `-language` and `-location`, `etag`,
    /// `last-modified`, `link` and `location`.
    ///
    /// # Errors
    /// For cookies, credentials, tokens, and what belongs to one connection.
    pub fn keep_header(mut self, name: &str) -> Result<Self, KeepError> {
        let name = storable(name)?;
        if !self.headers.contains(&name) {
            self.headers.push(name);
        }
        Ok(self)
    }

    /// Longest body of a request, in bytes; 1 MiB unless set, at most 64 MiB.
    /// Beyond it is 413.
    pub fn request_max_bytes(mut self, bytes: usize) -> Self {
        self.request_max_bytes = bytes;
        self
    }

    /// Longest body of a response, in bytes; 1 MiB unless set, at most 64 MiB.
    /// Beyond it the request fails with 500: in transactional mode it is rolled
    /// back, in leased mode that failure is what is stored.
    pub fn response_max_bytes(mut self, bytes: usize) -> Self {
        self.response_max_bytes = bytes;
        self
    }

    /// How long a response is replayed; 24 h unless set, from a minute to 72 h.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long after that [`AfterExpiry::Gone`] answers 410; 30 days unless set,
    /// at most 365.
    pub fn tombstone(mut self, tombstone: Duration) -> Self {
        self.tombstone = tombstone;
        self
    }

    /// What happens without the database; [`OnStoreFailure::Closed`] unless set.
    pub fn on_store_failure(mut self, on_store_failure: OnStoreFailure) -> Self {
        self.on_store_failure = on_store_failure;
        self
    }

    /// How long the handler may take, with the body of its response; 30 s unless
    /// set. Then it is dropped, and the answer is 503.
    pub fn handler_timeout(mut self, handler_timeout: Duration) -> Self {
        self.handler_timeout = handler_timeout;
        self
    }

    /// How long a lease lasts without renewal; 60 s unless set, at least 1 s. It
    /// is renewed in time while the handler runs.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// What becomes of a request whose lease has ended; [`Overtake::Resume`]
    /// unless set.
    pub fn overtake(mut self, overtake: Overtake) -> Self {
        self.overtake = overtake;
        self
    }

    /// Name of the route.
    pub fn route(&self) -> &str {
        &self.route
    }

    /// Looks whether all is within its bounds.
    ///
    /// # Errors
    /// The first setting that is not.
    pub fn check(&self) -> Result<(), PolicyError> {
        let second = Duration::from_secs(1);
        let is_token = |text: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-_.!#$%&'*+^`|~".contains(&b))
        };
        let rules = [
            (
                (1..=ROUTE_MAX_BYTES).contains(&self.route.len()) && !self.route.contains('\0'),
                "new",
                "a route has a name of 1 to 200 bytes",
            ),
            (is_token(&self.header), "key_header", "it is no name of a header"),
            (
                !self.methods.is_empty() && self.methods.iter().all(|method| is_token(method)),
                "methods",
                "name one at least, as POST",
            ),
            (
                (TTL_MIN..=TTL_MAX).contains(&self.ttl),
                "ttl",
                "responses are kept from 1 minute to 72 hours",
            ),
            (self.tombstone <= TOMBSTONE_MAX, "tombstone", "365 days at most"),
            (self.request_max_bytes <= BODY_MAX_BYTES, "request_max_bytes", "64 MiB at most"),
            (self.response_max_bytes <= BODY_MAX_BYTES, "response_max_bytes", "64 MiB at most"),
            (self.retry_after >= second, "retry_after", "1 s at least"),
            (
                !self.wait_max.is_zero() && self.wait_max <= TTL_MIN,
                "wait_max",
                "more than nothing, 1 minute at most",
            ),
            ((1..=WAITING_MAX).contains(&self.waiting_max), "waiting_max", "from 1 to 100,000"),
            (
                !self.handler_timeout.is_zero() && self.handler_timeout <= TTL_MIN * 60,
                "handler_timeout",
                "more than nothing, 1 hour at most",
            ),
            ((second..=TTL_MIN * 60).contains(&self.lease), "lease", "from 1 s to 1 hour"),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            Some((_, setting, problem)) => Err(PolicyError { setting, problem }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_their_bounds() {
        assert_eq!(Policy::new("POST /orders").check(), Ok(()));
    }

    #[test]
    fn bounds_are_checked_by_name() {
        let policy = || Policy::new("r");
        let hours = |hours: u64| Duration::from_secs(hours * 3_600);
        for (policy, setting) in [
            (Policy::new(""), "new"),
            (Policy::new("r".repeat(201)), "new"),
            (policy().key_header("a b"), "key_header"),
            (policy().methods([""; 0]), "methods"),
            (policy().ttl(Duration::from_secs(59)), "ttl"),
            (policy().ttl(hours(73)), "ttl"),
            (policy().tombstone(hours(24 * 366)), "tombstone"),
            (policy().request_max_bytes(usize::MAX), "request_max_bytes"),
            (policy().response_max_bytes(usize::MAX), "response_max_bytes"),
            (policy().retry_after(Duration::ZERO), "retry_after"),
            (policy().wait_max(Duration::ZERO), "wait_max"),
            (policy().waiting_max(0), "waiting_max"),
            (policy().handler_timeout(Duration::ZERO), "handler_timeout"),
            (policy().lease(Duration::from_millis(999)), "lease"),
        ] {
            assert_eq!(policy.check().unwrap_err().setting, setting);
        }
        policy().ttl(hours(72)).check().unwrap();
    }

    #[test]
    fn a_header_with_secrets_is_refused() {
        let error = Policy::new("r").keep_header("Set-Cookie").unwrap_err();
        assert!(error.to_string().contains("set-cookie"), "{error}");
        let policy = Policy::new("r").keep_header("X-Request-Id").unwrap();
        assert!(policy.headers.contains(&"x-request-id".to_owned()));
    }
}
