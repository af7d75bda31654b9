//! What a claim holds while it lasts.

use std::{collections::HashSet, sync::Arc, time::Instant};

use tokio::sync::oneshot;
use uuid::Uuid;

use super::{held::Looks, lane::Lane};
use crate::{
    Event, inbox::Inbox, kafka::KafkaFailure, ledger::Ledger, marker::Owner, sql::ClaimKey,
};

/// A claimed partition, its connection, and its events.
pub(super) struct Session {
    /// That of the claim, which also moves the offset.
    pub(super) lane: Lane,
    pub(super) key: ClaimKey,
    pub(super) reset_id: Option<Uuid>,
    pub(super) owner: Owner,
    pub(super) ledger: Ledger,
    pub(super) looks: Looks,
    pub(super) inbox: Arc<Inbox>,
    /// Events that are next, in order.
    pub(super) batch: Vec<Event>,
    /// The commit to Kafka that is on its way.
    pub(super) answer: Option<oneshot::Receiver<Result<(), KafkaFailure>>>,
    /// No commit to Kafka before this, after one failed.
    pub(super) commit_after: Option<Instant>,
}

/// Which effects are made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replay {
    /// How many resets have run effects again.
    pub(crate) run: i32,
    /// Below this offset done stays done, whatever its run.
    pub(crate) fill_until: Option<i64>,
}

impl Replay {
    /// Whether effects of earlier runs are made again for `events`, which
    /// [`cut`](Self::cut) keeps on one side of a fill's end.
    pub(crate) fn reruns(self, events: &[Event]) -> bool {
        self.run > 0 && events.first().is_some_and(|event| !self.fills(event.offset()))
    }

    /// How many of `events` one transaction may hold: one without identity
    /// alone, up to the end of a fill, and no id twice in a rerun.
    pub(crate) fn cut(self, events: &[Event]) -> usize {
        let Some(first) = events.first() else {
            return 0;
        };
        if first.identity().is_err() {
            return 1;
        }
        let (reruns, fills) = (self.reruns(events), self.fills(first.offset()));
        let mut seen = HashSet::new();
        let end = events.iter().position(|event| {
            event.identity().is_err()
                || self.fills(event.offset()) != fills
                || (reruns && !seen.insert((event.source(), event.id())))
        });
        end.unwrap_or(events.len())
    }

    fn fills(self, offset: i64) -> bool {
        self.fill_until.is_some_and(|until| offset < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(ids: &[&str]) -> Vec<Event> {
        let event = |(offset, id): (usize, &&str)| {
            let event = Event::builder("t").position(0, offset as i64);
            if id.is_empty() {
                event.build()
            } else {
                event.header("id", Some(id.as_bytes())).build()
            }
        };
        ids.iter().enumerate().map(event).collect()
    }

    #[test]
    fn an_event_without_identity_goes_alone() {
        let replay = Replay { run: 0, fill_until: None };
        assert_eq!(replay.cut(&events(&["a", "b", "", "c"])), 2);
        assert_eq!(replay.cut(&events(&["", "", "c"])), 1);
        assert_eq!(replay.cut(&[]), 0);
    }

    #[test]
    fn an_id_comes_twice_in_a_first_run_but_not_in_a_rerun() {
        let batch = events(&["a", "b", "a", "c"]);
        assert_eq!(Replay { run: 0, fill_until: None }.cut(&batch), 4);
        assert_eq!(Replay { run: 1, fill_until: None }.cut(&batch), 2);
        assert_eq!(Replay { run: 1, fill_until: Some(4) }.cut(&batch), 4);
    }

    #[test]
    fn below_the_end_of_a_fill_nothing_is_made_again() {
        let batch = events(&["a", "b", "c", "d"]);
        let replay = Replay { run: 1, fill_until: Some(3) };
        assert_eq!(replay.cut(&batch), 3);
        assert!(!replay.reruns(&batch[..3]));
        assert!(replay.reruns(&batch[3..]));
        assert!(!Replay { run: 0, fill_until: None }.reruns(&batch));
    }
}
