//! Keys in Redis as the guard: best effort, because Redis may forget.
//!
//! A key says `d`, done, or `p:<position>:<offset>:<epoch>:<until>`: the record
//! at that place is being applied, or was when its owner died. Which of both,
//! the offset of that position says, which moves with the effect alone, and
//! where it was reset since, the offset that the reset found; so a death between Redis and COMMIT, on either side of it, is decided by the
//! database and by no clock. The time `until` is for places that nobody comes
//! back to.

mod claiming;
mod decide;
mod retention;
mod script;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, aio::MultiplexedConnection};
use tokio::sync::Mutex;

pub(crate) use self::{claiming::Claiming, retention::keys_outlive_topics};
use self::{
    decide::{Answer, Claim, Place, Step, decide},
    script::{CLAIM, RELEASE},
};
use crate::{Event, sql::idle_timeout_ms};

/// Longest wait for a connection, and for an answer.
const ANSWER_LIMIT_MS: u64 = 2_000;
/// Beyond the longest life of a batch's transaction, until its place counts as
/// given up.
const LEASE_MARGIN_MS: u64 = 5_000;
const MIN_TTL_MS: u128 = 1_000;
const MAX_TTL_MS: u128 = 10 * 366 * 86_400_000;

/// What [`Guard::best_effort_redis`](crate::Guard::best_effort_redis) needs.
#[derive(Clone)]
pub struct RedisGuard {
    url: String,
    ttl: Duration,
    replay_window: Duration,
    key_prefix: String,
    accept_short_ttl: bool,
    link: Arc<Mutex<Link>>,
}

/// The one connection, which all partitions share.
#[derive(Default)]
struct Link {
    open: Option<MultiplexedConnection>,
    /// So that not each partition waits in turn for a server that is away.
    failed: Option<(Instant, RedisFailure)>,
}

impl RedisGuard {
    /// The server at `url`, such as `redis://localhost:6379/0`, which keeps the
    /// key of an event for `ttl` after its effect.
    pub fn new(url: impl Into<String>, ttl: Duration) -> Self {
        Self {
            url: url.into(),
            ttl,
            replay_window: Duration::ZERO,
            key_prefix: "walpost".to_owned(),
            accept_short_ttl: false,
            link: Arc::default(),
        }
    }

    /// How far back somebody may publish events once more, from the outbox or
    /// from an archive. It is added to the topics' retention, below which `ttl`
    /// is refused. 0 unless set.
    #[must_use]
    pub fn replay_window(mut self, window: Duration) -> Self {
        self.replay_window = window;
        self
    }

    /// What the keys begin with; `walpost` unless set. After it come the
    /// consumer, the source and the id of the event, with NUL between them.
    #[must_use]
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// Starts with whatever `ttl`: a copy that comes after it takes effect
    /// again. The topics' retention is not asked for.
    #[must_use]
    pub fn accept_short_ttl(mut self) -> Self {
        self.accept_short_ttl = true;
        self
    }

    pub(crate) fn problem(&self, handler_timeout_ms: u64) -> Option<String> {
        let lease_ms = lease_ms(handler_timeout_ms);
        if Client::open(self.url.as_str()).is_err() {
            let none = "the address of Redis is none, use redis://host:port/database (rediss:// \
                        needs a TLS feature of the crate redis, in your own Cargo.toml)";
            Some(none.to_owned())
        } else if !(MIN_TTL_MS..=MAX_TTL_MS).contains(&self.ttl.as_millis()) {
            Some("the time to live is out of bounds, use 1 s to 10 years".to_owned())
        } else if self.ttl.as_millis() < u128::from(2 * lease_ms) {
            Some(format!(
                "the time to live is shorter than twice the longest batch ({lease_ms} ms, which \
                 follows handler_timeout_ms): lengthen it"
            ))
        } else {
            None
        }
    }

    /// What the topics' retention may be at most, `None` for anything.
    pub(crate) fn longest_retention(&self) -> Option<Duration> {
        (!self.accept_short_ttl).then(|| self.ttl.saturating_sub(self.replay_window))
    }

    /// Why a topic of that retention, `None` for ever, is refused.
    pub(crate) fn refusal(&self, topic: &str, retention: Option<Duration>) -> String {
        let kept = retention
            .map_or_else(|| "for ever".to_owned(), |kept| format!("for {} s", kept.as_secs()));
        format!(
            "topic {topic} keeps records {kept} (retention.ms and segment.ms), and events may be published again for {} s, but \
             the time to live of a key is {} s: a copy that comes later would take effect again. \
             Lengthen the time to live, or call accept_short_ttl()",
            self.replay_window.as_secs(),
            self.ttl.as_secs(),
        )
    }

    /// The key of each event.
    pub(crate) fn keys(&self, consumer: &str, events: &[Event]) -> Vec<String> {
        let prefix = &self.key_prefix;
        let key =
            |event: &Event| format!("{prefix}\0{consumer}\0{}\0{}", event.source(), event.id());
        events.iter().map(key).collect()
    }

    /// Claims all of `claims`, or none where one of them is undecided.
    pub(crate) async fn claim(
        &self,
        keys: &[String],
        of: &Owner,
        claims: &[Claim],
    ) -> Result<Vec<Answer>, RedisFailure> {
        let mut command = redis::cmd("EVAL");
        command.arg(CLAIM).arg(keys.len()).arg(keys);
        command.arg(millis(self.ttl)).arg(of.lease_ms).arg(of.position).arg(of.epoch);
        for claim in claims {
            command.arg(claim.offset).arg(claim.decided());
        }
        let answers: Vec<String> = self.ask(&command).await?;
        if answers.len() != claims.len() {
            return Err(RedisFailure::Odd);
        }
        answers.iter().map(|text| Answer::parse(text).ok_or(RedisFailure::Odd)).collect()
    }

    /// After COMMIT: the effects are there.
    pub(crate) async fn done(&self, keys: &[String]) -> Result<(), RedisFailure> {
        let mut pipeline = redis::pipe();
        for key in keys {
            pipeline.cmd("SET").arg(key).arg("d").arg("PX").arg(millis(self.ttl)).ignore();
        }
        let mut connection = self.connect().await?;
        let answered = pipeline.query_async::<()>(&mut connection).await;
        self.checked(answered).await
    }

    /// Events that were set aside count as done: whoever retries them knows
    /// that they are not.
    pub(crate) async fn note(&self, consumer: &str, events: &[Event]) {
        if let Err(error) = self.done(&self.keys(consumer, events)).await {
            tracing::debug!(%error, "events that were set aside were not noted in Redis");
        }
    }

    /// After a rollback: what this owner has claimed is free again.
    pub(crate) async fn release(
        &self,
        keys: &[String],
        of: &Owner,
        offsets: &[i64],
    ) -> Result<(), RedisFailure> {
        let mut command = redis::cmd("EVAL");
        command.arg(RELEASE).arg(keys.len()).arg(keys);
        command.arg(of.position).arg(of.epoch).arg(offsets);
        self.ask(&command).await
    }

    async fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, RedisFailure> {
        let mut connection = self.connect().await?;
        let answered = command.query_async(&mut connection).await;
        self.checked(answered).await
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisFailure> {
        let mut link = self.link.lock().await;
        if let Some(open) = &link.open {
            return Ok(open.clone());
        }
        if let Some((at, failure)) = &link.failed
            && at.elapsed() < Duration::from_millis(ANSWER_LIMIT_MS)
        {
            return Err(failure.clone());
        }
        let limit = Some(Duration::from_millis(ANSWER_LIMIT_MS));
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(limit).set_response_timeout(limit);
        let client = Client::open(self.url.as_str())?;
        let open = client.get_multiplexed_async_connection_with_config(&config).await;
        let open = open.map_err(RedisFailure::from);
        link.failed = open.as_ref().err().map(|failure| (Instant::now(), failure.clone()));
        link.open = open.as_ref().ok().cloned();
        open
    }

    /// A connection that failed is made anew.
    async fn checked<T>(&self, answered: Result<T, RedisError>) -> Result<T, RedisFailure> {
        if let Err(error) = &answered
            && (error.is_io_error() || error.is_unrecoverable_error())
        {
            self.link.lock().await.open = None;
        }
        Ok(answered?)
    }
}

/// Without the address, which may have a password.
impl fmt::Debug for RedisGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ttl, replay_window, key_prefix, accept_short_ttl, .. } = self;
        f.debug_struct("RedisGuard")
            .field("ttl", ttl)
            .field("replay_window", replay_window)
            .field("key_prefix", key_prefix)
            .field("accept_short_ttl", accept_short_ttl)
            .finish_non_exhaustive()
    }
}

/// Whose claims they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) position: i32,
    pub(crate) epoch: i64,
    pub(crate) lease_ms: u64,
}

/// After that the server has ended the transaction of a batch, even if its
/// client fell silent when the handler had used up its time.
pub(crate) fn lease_ms(handler_timeout_ms: u64) -> u64 {
    handler_timeout_ms + idle_timeout_ms(handler_timeout_ms) + LEASE_MARGIN_MS
}

/// Why Redis could not be asked. Names no key.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum RedisFailure {
    #[error("Redis cannot be used ({kind:?}{code}), nothing is applied without it")]
    Away { kind: ErrorKind, code: String },
    #[error("a key of the guard holds what no guard has written; look at its prefix")]
    Odd,
}

impl From<RedisError> for RedisFailure {
    fn from(error: RedisError) -> Self {
        let code = error.code().map(|code| format!(" {code}")).unwrap_or_default();
        Self::Away { kind: error.kind(), code }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn keys_of_two_events_differ() {
        let guard = RedisGuard::new("redis://localhost", DAY);
        let event = |source: &str, id: &str| {
            let event = Event::builder("t").header("walpost-source", Some(source.as_bytes()));
            event.header("id", Some(id.as_bytes())).build()
        };
        let keys = guard.keys("c", &[event("a:b", "c"), event("a", "b:c"), event("a", "b")]);
        assert_eq!(keys, ["walpost\0c\0a:b\0c", "walpost\0c\0a\0b:c", "walpost\0c\0a\0b"]);
    }

    #[test]
    fn a_claim_outlives_the_transaction_that_made_it() {
        for handler_timeout_ms in [1, 30_000, 3_600_000] {
            let ended = handler_timeout_ms + idle_timeout_ms(handler_timeout_ms);
            assert!(lease_ms(handler_timeout_ms) > ended, "{handler_timeout_ms}");
        }
    }

    #[test]
    fn what_cannot_work_is_refused_without_the_address() {
        let problem =
            |url: &str, ttl| RedisGuard::new(url, ttl).problem(30_000).unwrap_or_default();
        assert_eq!(problem("redis://:s3cr3t@localhost/1", DAY), "");
        assert!(problem("s3cr3t", DAY).contains("redis://host:port"));
        assert!(!problem("s3cr3t", DAY).contains("s3cr3t"));
        assert!(problem("redis://localhost", Duration::ZERO).contains("1 s to 10 years"));
        assert!(problem("redis://localhost", Duration::from_secs(60)).contains("70000 ms"));
        assert!(!format!("{:?}", RedisGuard::new("redis://:s3cr3t@h", DAY)).contains("s3cr3t"));
    }

    #[test]
    fn the_time_to_live_covers_retention_and_replay_unless_told_otherwise() {
        let guard = RedisGuard::new("redis://localhost", 8 * DAY).replay_window(DAY);
        assert_eq!(guard.longest_retention(), Some(7 * DAY));
        assert_eq!(guard.clone().accept_short_ttl().longest_retention(), None);
        let text = guard.refusal("orders", None);
        assert!(text.contains("orders keeps records for ever") && text.contains("691200 s"));
    }
}
