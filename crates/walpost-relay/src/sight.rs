//! What the server says of the slot, and what keeps the slot where it is.

use std::{sync::Arc, time::Instant};

use walpost_event::{Lsn, Position};

use crate::watch::budget::WalBudget;

/// What the server said of the pipeline's slot when it was last asked.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SlotSight {
    /// When it was asked.
    pub at: Instant,
    /// How far the server has written its WAL.
    pub wal: Lsn,
    /// What the slot still has.
    pub state: SlotState,
    /// Why the server gave the slot up; PostgreSQL 16 and newer say so.
    pub invalidation: Option<String>,
    /// The oldest WAL that is kept for the slot.
    pub restart: Option<Lsn>,
    /// The position that the server has noted as confirmed.
    pub confirmed: Option<Lsn>,
    /// WAL that may still be written before the server may give the slot up.
    /// `None` where that is not bounded, and for a slot that is lost.
    pub invalidation_bytes: Option<u64>,
    /// The process of the server that sends to whoever reads the slot.
    pub active_pid: Option<i32>,
    /// How much of what may be kept is kept, where there is a bound.
    pub budget: Option<WalBudget>,
    /// Events set aside, as far as they were counted.
    pub parked: Option<ParkedSight>,
    pub(crate) holder: Holder,
}

/// Whether the slot still has the WAL that it needs, as `wal_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// There is no such slot.
    Missing,
    /// Within `max_wal_size`.
    Reserved,
    /// Beyond `max_wal_size`, and kept.
    Extended,
    /// No longer kept; the next checkpoint of the server may remove it.
    Unreserved,
    /// Given up by the server.
    Lost,
}

impl SlotState {
    /// All of them, as labels of a metric.
    pub(crate) const ALL: [Self; 5] =
        [Self::Missing, Self::Reserved, Self::Extended, Self::Unreserved, Self::Lost];

    /// One word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Reserved => "reserved",
            Self::Extended => "extended",
            Self::Unreserved => "unreserved",
            Self::Lost => "lost",
        }
    }

    /// From `wal_status`, `None` where there is no row. What a newer server
    /// calls otherwise is taken for kept: it still sends.
    pub(crate) fn of(wal_status: Option<&str>) -> Self {
        match wal_status {
            None => Self::Missing,
            Some("extended") => Self::Extended,
            Some("unreserved") => Self::Unreserved,
            Some("lost") => Self::Lost,
            Some(_) => Self::Reserved,
        }
    }
}

/// Events set aside and not settled yet, each number counted up to 100,000.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ParkedSight {
    /// Could not be delivered.
    pub open: u64,
    /// Wait behind one of those for the order of their aggregate.
    pub held: u64,
    /// Age of the oldest when they were counted, in seconds.
    pub oldest_seconds: f64,
}

/// The process that holds the slot, as far as our role may see it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Holder {
    /// When its client last reported, by that client's clock.
    pub(crate) reported_us: Option<i64>,
    /// It computes or reads, and waits for nobody.
    pub(crate) is_working: bool,
}

/// What a session has in hand: which step keeps the slot where it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Flow {
    /// Events of this session up to which all are durable or parked.
    pub(crate) settled: u64,
    /// Events that were read and are neither.
    pub(crate) pending: u64,
    /// Items read, while a transaction is open.
    pub(crate) open: Option<u64>,
    /// What is done is worth a checkpoint.
    pub(crate) is_due: bool,
    /// A checkpoint is being written, which has its own bound.
    pub(crate) is_writing: bool,
    /// The stream has to pass this before the oldest checkpoint is confirmed.
    pub(crate) unpassed: Option<Lsn>,
    /// The oldest event that is neither durable nor parked.
    pub(crate) oldest: Option<Oldest>,
}

/// The event that everything behind it waits for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Oldest {
    pub(crate) position: Position,
    /// Where it goes, if that is known.
    pub(crate) topic: Option<Arc<str>>,
}

impl SlotSight {
    /// WAL that the server keeps for the slot.
    pub fn retained_bytes(&self) -> Option<u64> {
        self.restart.map(|restart| self.wal.bytes_since(restart))
    }
}

impl Oldest {
    /// For people: which event it is.
    pub(crate) fn describe(&self) -> String {
        let Position { commit_lsn, ordinal } = self.position;
        match &self.topic {
            Some(topic) => format!("number {ordinal} of the commit at {commit_lsn}, for {topic}"),
            None => format!("number {ordinal} of the commit at {commit_lsn}"),
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A slot that is well, with nothing to confirm.
    pub(crate) fn sight(wal: u64) -> SlotSight {
        SlotSight {
            at: Instant::now(),
            wal: Lsn::from(wal),
            state: SlotState::Reserved,
            invalidation: None,
            restart: Some(Lsn::from(wal)),
            confirmed: Some(Lsn::from(wal)),
            invalidation_bytes: None,
            active_pid: Some(1),
            budget: None,
            parked: None,
            holder: Holder::default(),
        }
    }
}
