//! What applies events, one transaction after another.

use super::{held::Held, replay::Replay, trials::Trials};
use crate::{
    Event,
    failpoint::Failpoint,
    pool::Slot,
    sql::{ClaimKey, Sql},
};

/// What the transactions of one lane share while a claim lasts.
pub(super) struct Lane {
    pub(super) slot: Slot,
    pub(super) replay: Replay,
    pub(super) held: Held,
    pub(super) trials: Trials,
    /// Transactions that were committed behind [`Fence::Epoch`].
    pub(super) committed: i64,
}

impl Lane {
    /// A transaction was committed.
    pub(super) fn committed(&mut self, fence: Fence<'_>) {
        self.committed += i64::from(matches!(fence, Fence::Epoch { .. }));
    }

    /// The events, from the first of `events` on, that the next transaction
    /// takes: either such as wait for their keys, or such as do not.
    pub(super) fn next<'events>(&self, events: &'events [Event]) -> &'events [Event] {
        let count = self.trials.sizing.cut(events.iter().map(Event::offset));
        let count = self.replay.cut(&events[..count]);
        let events = &events[..count];
        let waits = events.first().is_some_and(|first| self.held.holds(first));
        let other = events.iter().position(|event| self.held.holds(event) != waits);
        &events[..other.unwrap_or(count)]
    }
}

/// What a transaction checks first, so that only the owner commits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fence<'a> {
    /// It moves the offset of the partition, whose row it holds to its end.
    Offset { key: ClaimKey, known: &'a [i64] },
    /// It shares the partition with others, and one beside them moves the
    /// offset behind what all have done.
    Epoch { key: ClaimKey },
}

impl Fence<'_> {
    pub(super) fn key(self) -> ClaimKey {
        let (Self::Offset { key, .. } | Self::Epoch { key }) = self;
        key
    }

    pub(super) fn position(self) -> i32 {
        self.key().position
    }

    /// Where tests stop the process, before COMMIT and after it.
    pub(super) fn failpoints(self) -> [Failpoint; 2] {
        match self {
            Self::Offset { .. } => [Failpoint::BeforeCommit, Failpoint::AfterCommit],
            Self::Epoch { .. } => [Failpoint::BeforeLaneCommit, Failpoint::AfterLaneCommit],
        }
    }

    /// The first and the last statement of a transaction for `events`, or for
    /// none of the log's.
    pub(super) fn statements(self, sql: &Sql, events: &[Event]) -> (String, String) {
        match self {
            Self::Offset { key, known } => {
                let next = key.after(events);
                (sql.batch_begin(&key, &next, known), sql.batch_end(&next))
            }
            Self::Epoch { key } => (sql.lane_work(&key), sql.lane_end(&key)),
        }
    }
}
