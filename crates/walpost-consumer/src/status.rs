use std::{collections::BTreeMap, fmt, sync::Arc};

use tokio::sync::watch;

/// Topic and partition number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// Topic name.
    pub topic: Arc<str>,
    /// Partition number.
    pub partition: i32,
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.topic, self.partition)
    }
}

/// What a consumer is doing, for health checks and tests. Given by
/// [`Consumer::status`](crate::Consumer::status).
///
/// ```
/// use tokio::sync::watch;
/// use walpost_consumer::Status;
///
/// /// Waits until so many effects were made.
/// async fn applied(mut status: watch::Receiver<Status>, count: u64) {
///     let _ = status.wait_for(|status| status.counts.applied >= count).await;
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The partitions that the group gave to this member.
    pub partitions: BTreeMap<TopicPartition, PartitionStatus>,
    /// Counts since the start of this consumer, over all partitions.
    pub counts: Counts,
}

/// What happened to events; each is counted when its transaction committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Effects that were made.
    pub applied: u64,
    /// Events whose effect had been made before.
    pub duplicates: u64,
    /// Events that were parked.
    pub parked: u64,
    /// Events that were set aside untried, behind a parked one of their key.
    pub waiting: u64,
    /// Parked and waiting events whose effect was made after all. They are
    /// counted in `applied` too.
    pub unparked: u64,
    /// Offset resets that were carried out.
    pub resets: u64,
    /// Claims of partitions.
    pub claims: u64,
}

impl Counts {
    /// Whether anything was done with events for the first time.
    pub(crate) fn are_new(self) -> bool {
        self.applied + self.parked + self.waiting > 0
    }

    pub(crate) fn add(&mut self, more: Self) {
        let Self { applied, duplicates, parked, waiting, unparked, resets, claims } = more;
        self.applied += applied;
        self.duplicates += duplicates;
        self.parked += parked;
        self.waiting += waiting;
        self.unparked += unparked;
        self.resets += resets;
        self.claims += claims;
    }
}

/// One assigned partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionStatus {
    /// What it is doing.
    pub state: PartitionState,
    /// Effects are made up to before this offset.
    pub next_offset: Option<i64>,
    /// The last offset that Kafka confirmed since the claim.
    pub committed_offset: Option<i64>,
    /// Epoch of the claim.
    pub epoch: i64,
    /// How many resets have run effects again.
    pub run: i32,
}

/// What a partition is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartitionState {
    /// Taking it over: from a predecessor, or again after a lost connection.
    #[default]
    Claiming,
    /// Applying events, or waiting for some.
    Running,
    /// Waiting before another attempt at the next event.
    Retrying,
    /// Nothing goes on until somebody decides.
    Halted {
        /// Why, and how to go on.
        reason: String,
    },
}

/// The writing side, shared by all partitions.
#[derive(Clone, Debug)]
pub(crate) struct Board {
    status: Arc<watch::Sender<Status>>,
}

impl Board {
    pub(crate) fn new() -> Self {
        Self { status: Arc::new(watch::Sender::new(Status::default())) }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    pub(crate) fn look(&self, at: impl FnOnce(&Status)) {
        at(&self.status.borrow());
    }

    pub(crate) fn update(&self, of: &TopicPartition, change: impl FnOnce(&mut PartitionStatus)) {
        self.status.send_modify(|status| {
            if let Some(partition) = status.partitions.get_mut(of) {
                change(partition);
            } else {
                let mut partition = PartitionStatus::default();
                change(&mut partition);
                status.partitions.insert(of.clone(), partition);
            }
        });
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Counts)) {
        self.status.send_modify(|status| change(&mut status.counts));
    }

    /// A transaction of the partition was committed.
    pub(crate) fn advance(
        &self,
        of: &TopicPartition,
        next_offset: i64,
        change: impl FnOnce(&mut Counts),
    ) {
        self.status.send_modify(|status| {
            change(&mut status.counts);
            if let Some(partition) = status.partitions.get_mut(of) {
                partition.next_offset = Some(next_offset);
            }
        });
    }

    pub(crate) fn remove(&self, of: &TopicPartition) {
        self.status.send_modify(|status| {
            status.partitions.remove(of);
        });
    }

    /// What is halted, `None` for nothing.
    pub(crate) fn halted(&self) -> Option<Halted> {
        let status = self.status.borrow();
        let mut halted = status.partitions.iter().filter_map(|(of, partition)| {
            let PartitionState::Halted { reason } = &partition.state else { return None };
            Some((of, reason))
        });
        let (first, reason) = halted.next()?;
        Some(Halted {
            first: first.clone(),
            reason: reason.clone(),
            count: 1 + halted.count(),
            of: status.partitions.len(),
        })
    }
}

/// The halted ones among the assigned partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Halted {
    pub(crate) first: TopicPartition,
    pub(crate) reason: String,
    pub(crate) count: usize,
    pub(crate) of: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halted_partitions_are_counted_among_the_assigned() {
        let board = Board::new();
        let partition = |partition| TopicPartition { topic: "t".into(), partition };
        let halt = |status: &mut PartitionStatus| {
            status.state = PartitionState::Halted { reason: "why".into() };
        };
        assert_eq!(board.halted(), None);
        board.update(&partition(0), |_| ());
        assert_eq!(board.halted(), None);
        board.update(&partition(1), halt);
        board.update(&partition(2), halt);
        let expected = Halted { first: partition(1), reason: "why".into(), count: 2, of: 3 };
        assert_eq!(board.halted(), Some(expected.clone()));
        board.remove(&partition(0));
        assert_eq!(board.halted(), Some(Halted { of: 2, ..expected }));
    }
}
