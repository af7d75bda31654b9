//! The seam of `walpost-consumer-test`: this very consumer on a log in memory,
//! with somebody who looks on and may hold it up. Everything else (claims, the
//! fence, deduplication, transactions, parking, lanes) is what runs in
//! production.
//!
//! No public API: only crates of the same version use it.

use std::{future::Future, sync::Arc};

use futures_util::future::BoxFuture;

pub use crate::kafka::Cluster;
use crate::{
    Consumer, Error, Event, Handler, HandlerError, TopicPartition, failpoint::Failpoint,
    points::Points, store::HandlerFailed,
};

/// Where a batch can be held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Point {
    /// The events are chosen, their transaction has not begun.
    BeforeTransaction,
    /// Offset and deduplication rows are written, the handler has not begun.
    BeforeHandler,
    /// The handler has returned, COMMIT has not been sent.
    BeforeCommit,
    /// Committed; Kafka is about to be told.
    AfterCommit,
}

impl Point {
    pub(crate) fn of(failpoint: Failpoint) -> Option<Self> {
        match failpoint {
            Failpoint::AfterBegin => Some(Self::BeforeHandler),
            Failpoint::BeforeCommit | Failpoint::BeforeLaneCommit => Some(Self::BeforeCommit),
            Failpoint::BeforeKafkaCommit => Some(Self::AfterCommit),
            Failpoint::BeforeUnparkCommit
            | Failpoint::BeforeSettle
            | Failpoint::AfterCommit
            | Failpoint::AfterLaneCommit
            | Failpoint::BeforeLaneOffset
            | Failpoint::BeforeRelease
            | Failpoint::ResetAfterKafkaCommit
            | Failpoint::ResetAfterRewind
            | Failpoint::AfterDeadLetter => None,
        }
    }
}

/// What became of one call of the handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It returned `Ok`.
    Done,
    /// It failed, panicked, or took too long.
    Failed {
        /// What kind of error the consumer takes it for.
        kind: Kind,
        /// Its text, as the consumer shows it.
        reason: String,
        /// Offset of the event, if that is known.
        at: Option<i64>,
    },
}

/// The variants of [`HandlerError`], without their causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are those of HandlerError")]
pub enum Kind {
    Transient,
    Retry,
    Park,
    Halt,
}

impl Outcome {
    pub(crate) fn of(outcome: &Result<(), HandlerFailed>) -> Self {
        let Err(HandlerFailed { error, at, .. }) = outcome else { return Self::Done };
        let kind = match error {
            HandlerError::Transient(_) => Kind::Transient,
            HandlerError::Retry(_) => Kind::Retry,
            HandlerError::Park(_) => Kind::Park,
            HandlerError::Halt(_) => Kind::Halt,
        };
        Self::Failed { kind, reason: error.report(), at: *at }
    }
}

/// Looks on. Called within the partitions' tasks.
pub trait Probe: Send + Sync {
    /// A transaction that begins at `offset` has reached `point`, and goes on
    /// when the future ends.
    fn reached(&self, point: Point, of: TopicPartition, offset: i64) -> BoxFuture<'_, ()>;

    /// The handler was called with `events`.
    fn handled(&self, events: &[Event], outcome: Outcome);
}

/// [`Consumer::run`] on `cluster`, of which it takes all partitions.
///
/// # Errors
/// Those of [`Consumer::run`].
pub async fn run<H: Handler>(
    consumer: Consumer<H>,
    cluster: &Cluster,
    probe: Arc<dyn Probe>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Error> {
    consumer.run_in_memory(cluster, Points::of(probe), shutdown).await
}
