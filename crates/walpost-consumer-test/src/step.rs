use std::fmt;

use walpost_consumer::testing::Point;

/// Where a transaction of the consumer can be interrupted.
///
/// The fence comes first in each transaction and moves the offset too, and the
/// deduplication rows follow; so there is nothing between the handler and the
/// offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Step {
    /// The events are chosen, nothing is done: whoever takes over now leaves
    /// nothing but the fence to refuse the transaction that begins later.
    BeforeTransaction,
    /// The offset has moved and the deduplication rows are written, both
    /// uncommitted; the handler has not begun.
    BeforeHandler,
    /// The handler has returned, nothing is committed.
    BeforeCommit,
    /// Everything is committed, Kafka does not know.
    AfterCommit,
}

impl Step {
    /// All, in their order.
    pub const ALL: [Self; 4] =
        [Self::BeforeTransaction, Self::BeforeHandler, Self::BeforeCommit, Self::AfterCommit];

    /// Whether a transaction is open.
    pub(crate) fn is_within(self) -> bool {
        matches!(self, Self::BeforeHandler | Self::BeforeCommit)
    }

    pub(crate) fn point(self) -> Point {
        match self {
            Self::BeforeTransaction => Point::BeforeTransaction,
            Self::BeforeHandler => Point::BeforeHandler,
            Self::BeforeCommit => Point::BeforeCommit,
            Self::AfterCommit => Point::AfterCommit,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeforeTransaction => "before the transaction",
            Self::BeforeHandler => "before the handler",
            Self::BeforeCommit => "before COMMIT",
            Self::AfterCommit => "after COMMIT",
        })
    }
}

/// What happens at a [`Step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server ends the transaction, the consumer goes without another
    /// step, and another one starts, with another handler.
    Crash(Step),
    /// The server ends the transaction, and the consumer lives.
    Disconnect(Step),
    /// Nothing: it stays there until it is let go on.
    Pause(Step),
}

impl Fault {
    pub(crate) fn step(self) -> Step {
        let (Self::Crash(step) | Self::Disconnect(step) | Self::Pause(step)) = self;
        step
    }
}
