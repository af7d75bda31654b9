//! The relay over a server and brokers that are data: one number gives one
//! schedule of commits, delays, faults and crashes, and the same one each time.
//!
//! Everything from the take-over of the checkpoint on is the real thing. What
//! is simulated is what it talks to: the WAL and its slot (`source.rs`), the
//! rows (`server.rs`), the log (`brokers.rs`, `coordinator.rs`, `sink.rs`), and
//! time, which is tokio's paused clock. Sessions are killed, stopped, or stand
//! still and wake beside their successors (`relay.rs`, `lives.rs`), and rows
//! leave the outbox (`pruner.rs`, by the real conditions, which `condition.rs`
//! reads), or go to another pipeline (`mover.rs`, `moves.rs`). `oracle.rs` judges at every checkpoint, confirmation
//! and record, and at the end; `shrink.rs` makes a schedule that fails small.

mod brokers;
mod condition;
mod coordinator;
mod lives;
mod log;
mod mover;
mod moves;
mod oracle;
mod outbox;
mod pruner;
mod relay;
mod rows;
mod run;
mod schedule;
mod server;
mod shrink;
mod sink;
mod slot;
mod source;
mod tests;
mod world;

use std::cell::Cell;

pub(crate) use self::server::{ParkedRow, Server};

/// A mistake that the simulation has to notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// An event counts as done once the sink has it in its queue.
    AckWhenQueued,
    /// A batch that failed keeps back nothing: what was acknowledged behind it
    /// counts.
    AckPastFailedBatch,
    /// A session begins within the transaction that was published last, behind
    /// the last event that was found of it.
    ResumeInsideTransaction,
    /// A snapshot counts although it does not see everything that has come.
    AnySnapshot,
    /// A snapshot counts before everything below its position is done.
    ProvenAtOnce,
    /// What a lost slot has published is looked for from the floors of the last
    /// checkpoint on.
    FloorsOfNow,
    /// A predecessor of another name is not fenced off.
    NoFence,
    /// A transaction whose end nobody was told counts as aborted, and the next
    /// producer sends its events without a look at the topics.
    ResendUnknown,
    /// A record counts as done before its transaction is committed.
    AckBeforeCommit,
    /// Rows leave by a snapshot that is not proven yet.
    PruneUnproven,
    /// Rows leave once one of the pipelines that read them has proven them.
    PruneByOne,
    /// A receiver goes on behind the boundary of a move whose entry it does not
    /// see yet.
    CrossUnseen,
    /// A row is whoever's filter takes it now, whenever it was committed.
    FilterOfNow,
    /// An event that was refused apart from the others counts as done.
    PassRefused,
    /// An event that waited aside goes, although one before it of its aggregate was
    /// parked meanwhile.
    PassBehind,
    /// A topic that one broker denies counts as gone.
    BelieveDenial,
}

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    /// A transaction has ended in an unknown way.
    static UNKNOWN: Cell<bool> = const { Cell::new(false) };
}

/// A transaction has ended, and nobody was told how.
pub(crate) fn ended_unknown() {
    UNKNOWN.set(true);
}

/// Whether the relay of this thread does not look what became of such a one.
pub(crate) fn resends_unknown() -> bool {
    UNKNOWN.take() && has(Bug::ResendUnknown)
}

/// Whether the relay of this thread makes this mistake.
pub(crate) fn has(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whoever makes it until this is dropped.
struct Planted;

impl Planted {
    fn new(bug: Option<Bug>) -> Self {
        PLANTED.set(bug);
        UNKNOWN.set(false);
        Self
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        PLANTED.set(None);
    }
}
