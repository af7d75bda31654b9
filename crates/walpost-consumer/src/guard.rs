//! What keeps an effect from being made twice.

use std::fmt;

use crate::{HandlerError, OnReset, Park, database_error::postgres_error, store::StoreError};

/// Most constraints that one guard may name.
const MAX_CONSTRAINTS: usize = 64;
/// Longest name in PostgreSQL, in bytes.
const MAX_NAME_BYTES: usize = 63;
const UNIQUE_VIOLATION: &str = "23505";

/// What keeps the effect of an event from being made twice when the event
/// comes again.
///
/// Under every guard the stored offset moves in the transaction of the effect,
/// behind the fence: kills, pauses and rebalances repeat nothing. A guard is
/// about copies of an event: records with the same id at other offsets. With
/// [lanes](crate::Builder::lanes) it is about kills too, as the offset follows
/// later: under a business key what was done beyond it is handled again, and its
/// key finds it done.
///
/// A consumer keeps its guard: another one is refused until
/// `walpost.change_consumer` has said so.
///
/// ```
/// use walpost_consumer::{Consumer, Guard, OnReset};
///
/// let builder = Consumer::builder("payments")
///     .guard(Guard::business_key(["payment_ref_key"]))
///     .on_reset(OnReset::Fill);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Guard {
    /// A row in the table `done` for each event. The default.
    #[default]
    Rows,
    /// Unique keys of the handler's own tables; see
    /// [`Guard::business_key`].
    BusinessKey(BusinessKey),
    /// Keys in Redis; see [`Guard::best_effort_redis`].
    #[cfg(feature = "redis")]
    BestEffortRedis(crate::RedisGuard),
}

impl Guard {
    /// The effect itself has a unique key: a second one violates one of the
    /// unique constraints or indexes with these names, and that means "already
    /// done". No rows are written to `done`, so nothing grows beside the
    /// effects.
    ///
    /// A handler best leaves out by itself what is there, which costs
    /// nothing and needs no name here to be right:
    ///
    /// ```sql
    /// insert into payment (id, ref) values ($1, $2)
    /// on conflict (ref) do nothing returning id;
    /// ```
    ///
    /// No row back means that it was done: then write nothing else.
    ///
    /// Where a handler writes without `ON CONFLICT`, a violation (SQLSTATE
    /// 23505) of a declared constraint rolls the batch back; the event is tried
    /// alone behind a savepoint, and when it violates the constraint again,
    /// everything that the handler wrote for it is undone, and it counts as a
    /// duplicate. That is no attempt of [`Builder::max_attempts`]. A violation
    /// of any other constraint is a failure of the event, as ever.
    ///
    /// All effects of one event must stand or fall with its key: what a handler
    /// writes before the statement that violates it is undone with it.
    ///
    /// An effect that was made cannot be told from one that another event
    /// made with the same key, so [`OnReset::Rerun`] is refused. With
    /// [`OnReset::Fill`] a reset makes what is missing. A parked event has its
    /// row in `done` all the same: its copies are not parked again.
    ///
    /// The consumer does not start where the database has no unique index of
    /// such a name, or only deferrable ones: those are violated at COMMIT,
    /// where nobody can tell by which event. A partitioned table reports the
    /// names of its partitions' indexes: name those. A consumer that changes
    /// from this guard to [`Guard::Rows`] does not know the events from
    /// before.
    ///
    /// [`Builder::max_attempts`]: crate::Builder::max_attempts
    pub fn business_key<N: Into<String>>(constraints: impl IntoIterator<Item = N>) -> Self {
        Self::BusinessKey(BusinessKey {
            constraints: constraints.into_iter().map(Into::into).collect(),
        })
    }

    /// A key in Redis for each event, for as long as it lives, instead of a row
    /// in the database. Needs the feature `redis`.
    ///
    /// Best effort: Redis may forget. Where it loses keys (a restart without
    /// persistence, a fail-over, eviction), or they end, a copy of an event
    /// takes effect again. Offset and effect are still one transaction, so
    /// nothing is lost, and what is no copy takes effect once; the default
    /// guard is exact for copies too, and needs no second server.
    ///
    /// In each batch, behind the fence, the keys of all events are set where
    /// they are not (`SET NX`, in one script), each with its record's place and
    /// the owner's epoch; after COMMIT they say done. In between:
    ///
    /// - The consumer dies before COMMIT: nothing was made. The next owner of the
    ///   partition takes its keys over at once.
    /// - It dies after COMMIT: the stored offset has passed the place in the key,
    ///   so a copy finds that it is done; also when it was reset since.
    /// - A copy elsewhere meets a key whose place has not been passed: it waits,
    ///   for twice `handler_timeout_ms` and 10 seconds at most, beyond which the
    ///   server has ended a transaction whose client is gone or paused; then it
    ///   takes the key over, and the record at that place is the copy. A COMMIT
    ///   that waits for a synchronous standby for longer than that is not waited
    ///   for.
    /// - Redis is away: the partition waits, tries again for ever, and applies
    ///   nothing. That is no attempt of the event.
    ///
    /// After a reset a key cannot tell an earlier run, so [`OnReset::Rerun`] is
    /// refused; and events that would wait behind a parked one are not looked up,
    /// so [`Park::Key`] is. The consumer does not start where a topic keeps its records,
    /// with the [replay window](crate::RedisGuard::replay_window) added, for
    /// longer than a key lives, unless
    /// [told to](crate::RedisGuard::accept_short_ttl); it needs the right
    /// DescribeConfigs to know. Redis 5 or newer, one server (no cluster), with
    /// the policy `noeviction`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use walpost_consumer::{Consumer, Guard, OnReset, Park, RedisGuard};
    ///
    /// let month = Duration::from_secs(30 * 86_400);
    /// let redis = RedisGuard::new("redis://localhost:6379/0", month);
    /// let builder = Consumer::builder("mailing")
    ///     .guard(Guard::best_effort_redis(redis))
    ///     .on_reset(OnReset::Fill)
    ///     .park(Park::Event);
    /// ```
    #[cfg(feature = "redis")]
    pub fn best_effort_redis(redis: crate::RedisGuard) -> Self {
        Self::BestEffortRedis(redis)
    }

    #[cfg(feature = "redis")]
    pub(crate) fn redis(&self) -> Option<&crate::RedisGuard> {
        match self {
            Self::BestEffortRedis(redis) => Some(redis),
            Self::Rows | Self::BusinessKey(_) => None,
        }
    }

    /// As the table `consumer` has it.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::BusinessKey(_) => "business key",
            #[cfg(feature = "redis")]
            Self::BestEffortRedis(_) => "redis",
        }
    }

    /// Whether events are deduplicated by rows of `done`.
    pub(crate) fn has_rows(&self) -> bool {
        matches!(self, Self::Rows)
    }

    /// The unique indexes that have to be there.
    pub(crate) fn constraints(&self) -> &[String] {
        match self {
            Self::BusinessKey(key) => &key.constraints,
            Self::Rows => &[],
            #[cfg(feature = "redis")]
            Self::BestEffortRedis(_) => &[],
        }
    }

    /// Whether `error` says that the effect was made before.
    pub(crate) fn says_done(&self, error: &HandlerError) -> bool {
        match (self, error) {
            (Self::BusinessKey(key), HandlerError::Retry(cause)) => key.is_violated_by(cause),
            _ => false,
        }
    }

    /// What is wrong with so many lanes, if anything.
    #[cfg_attr(not(feature = "redis"), expect(unused_variables, reason = "for Redis alone"))]
    pub(crate) fn problem_with_lanes(&self, lanes: usize) -> Option<String> {
        match self {
            Self::Rows | Self::BusinessKey(_) => None,
            #[cfg(feature = "redis")]
            Self::BestEffortRedis(_) if lanes > 1 => Some(
                "leave it at 1: with keys in Redis the stored offset decides after a death, and \
                 behind lanes it follows later"
                    .to_owned(),
            ),
            #[cfg(feature = "redis")]
            Self::BestEffortRedis(_) => None,
        }
    }

    /// What is wrong with holding back keys of parked events, if anything.
    #[cfg_attr(not(feature = "redis"), expect(unused_variables, reason = "for Redis alone"))]
    pub(crate) fn problem_with_park(&self, park: Park) -> Option<String> {
        match self {
            Self::Rows | Self::BusinessKey(_) => None,
            #[cfg(feature = "redis")]
            Self::BestEffortRedis(_) if park == Park::Key => Some(
                "set Park::Event: events that wait behind a parked one are not looked up in Redis, \
                 and copies among them would take effect again"
                    .to_owned(),
            ),
            #[cfg(feature = "redis")]
            Self::BestEffortRedis(_) => None,
        }
    }

    /// What is wrong with it, if anything.
    #[cfg_attr(not(feature = "redis"), expect(unused_variables, reason = "for Redis alone"))]
    pub(crate) fn problem(&self, on_reset: OnReset, handler_timeout_ms: u64) -> Option<String> {
        match self {
            Self::Rows => return None,
            Self::BusinessKey(key) => key.problem().map(str::to_owned),
            #[cfg(feature = "redis")]
            Self::BestEffortRedis(redis) => redis.problem(handler_timeout_ms),
        }
        .or_else(|| {
            let rerun = "it cannot tell the effect of an earlier run: use \
                         on_reset(OnReset::Fill), or OnReset::Refuse";
            (on_reset == OnReset::Rerun).then(|| rerun.to_owned())
        })
    }
}

/// Names of unique constraints or indexes. Made by [`Guard::business_key`].
#[derive(Clone, PartialEq, Eq)]
pub struct BusinessKey {
    constraints: Vec<String>,
}

impl BusinessKey {
    fn problem(&self) -> Option<&'static str> {
        let is_name =
            |name: &String| (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.contains('\0');
        if !(1..=MAX_CONSTRAINTS).contains(&self.constraints.len()) {
            Some("name 1 to 64 unique constraints or indexes, such as payment_ref_key")
        } else if !self.constraints.iter().all(is_name) {
            Some("a name of a constraint has 1 to 63 bytes, as PostgreSQL reports it")
        } else {
            None
        }
    }

    fn is_violated_by(&self, cause: &crate::BoxError) -> bool {
        let by_own = || {
            let error = postgres_error(cause)?.as_db_error()?;
            Some((error.code().code().to_owned(), error.constraint()?.to_owned()))
        };
        let Some((state, constraint)) = by_own().or_else(|| StoreError::constraint_in(cause))
        else {
            return false;
        };
        state == UNIQUE_VIOLATION && self.constraints.contains(&constraint)
    }
}

impl fmt::Debug for BusinessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(&self.constraints).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ServerMessage;

    fn violation(state: &'static str, constraint: &'static str) -> StoreError {
        StoreError::server(&ServerMessage {
            severity: "ERROR",
            state,
            message: "secret",
            file: Some("nbtinsert.c"),
            constraint: Some(constraint),
            ..ServerMessage::default()
        })
    }

    #[test]
    fn a_violation_of_a_declared_constraint_alone_means_done() {
        let guard = Guard::business_key(["payment_ref_key"]);
        let says = |state, constraint| guard.says_done(&violation(state, constraint).into());
        assert!(says("23505", "payment_ref_key"));
        assert!(!says("23505", "payment_pkey"));
        assert!(!says("23503", "payment_ref_key"));
        let wrapped = HandlerError::park(violation("23505", "payment_ref_key"));
        assert!(!guard.says_done(&wrapped), "the handler has decided");
        assert!(!Guard::Rows.says_done(&violation("23505", "payment_ref_key").into()));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let problem = |names: &[&str], on_reset| {
            Guard::business_key(names.iter().copied()).problem(on_reset, 30_000).unwrap_or_default()
        };
        assert_eq!(problem(&["a_key"], OnReset::Fill), "");
        assert_eq!(problem(&["a_key"], OnReset::Refuse), "");
        assert!(problem(&["a_key"], OnReset::Rerun).contains("OnReset::Fill"));
        assert!(problem(&[], OnReset::Fill).contains("name 1 to 64"));
        assert!(problem(&[""], OnReset::Fill).contains("1 to 63 bytes"));
        assert_eq!(Guard::Rows.problem(OnReset::Rerun, 30_000), None);
    }
}
