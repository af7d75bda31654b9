//! The protocol of the consumer over a database and brokers that are data: one
//! number gives one schedule of records, copies, kills, pauses, rebalances,
//! tools, answers that come late and a database that goes back to an earlier
//! state, and the same one each time.
//!
//! Decided by the real thing: how a partition begins (`decide.rs`), what Kafka
//! may hold as ours (`ledger.rs`), what is written beside an offset
//! (`marker.rs`), and how batches are cut (`partition/session.rs`). Simulated:
//! the transactions and functions of the migration (`database.rs`), the log, the
//! group and its commits (`kafka.rs`), and the steps of a member between them
//! (`member.rs`, `worker.rs`), each of which may be its last, or be made beside
//! a successor. `schedule.rs` draws what happens; `oracle.rs` judges at every
//! commit, and at the end.

mod database;
mod kafka;
mod member;
mod oracle;
mod schedule;
mod tests;
mod worker;

/// A mistake that the simulation has to notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// The end of a batch is committed to Kafka before the batch is committed to
    /// the database.
    KafkaFirst,
    /// The offset moves in a transaction of its own before the effects.
    OffsetFirst,
    /// A batch looks neither at its epoch nor at the stored offset.
    NoCompareAndSet,
    /// What was done in an earlier run counts as done in this one.
    RunIgnored,
    /// The list of numbers that Kafka may hold is not stored.
    KnownForgotten,
    /// A reset by SQL forgets the numbers that Kafka may hold.
    KnownDropped,
    /// The group is asked for its offset before the claim.
    AskedBeforeClaim,
    /// A batch goes on behind the end of a fill.
    FillUncut,
    /// A commit that an older database does not know counts as a wish.
    GroupLeads,
    /// A reset that an older database does not know counts as one to carry out.
    EveryResetPending,
}
