use std::fmt;

use walpost_consumer::{
    Event,
    testing::{Kind, Outcome},
};

/// Parked events and failures that a text names.
const MAX_SHOWN: usize = 20;

/// What became of delivered events.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Effects that were made.
    pub applied: u64,
    /// Events that were not given to the handler, as their effect was there.
    pub duplicates: u64,
    /// Events that were set aside untried, behind a parked one of their key.
    pub waiting: u64,
    /// Events that the consumer parked, in their order.
    pub parked: Vec<Parked>,
    /// Calls of the handler, in their order; at most 10,000 are kept.
    pub calls: Vec<Call>,
    /// How often the delivery was interrupted, as it was asked to be.
    pub interrupted: u64,
    /// How it ended.
    pub ending: Ending,
}

/// How a delivery ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// All events are done: applied, duplicates, or set aside.
    #[default]
    Done,
    /// A partition halted: nothing of it goes on until somebody has looked.
    Halted {
        /// Why, and how to go on.
        reason: String,
    },
    /// The handler failed with a transient error again and again: the consumer
    /// would try for ever.
    Transient {
        /// Its text.
        reason: String,
    },
}

/// An event that the handler could not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parked {
    /// The event's id, `None` for a record without a usable one.
    pub event_id: Option<String>,
    /// Topic, partition and offset as `topic[partition]@offset`.
    pub place: String,
    /// How often it was tried.
    pub attempts: i32,
    /// The text of the last failure.
    pub reason: String,
}

/// One call of the handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// Ids of the events.
    pub event_ids: Vec<String>,
    /// Why it failed, `None` if it returned `Ok`.
    pub failure: Option<Failure>,
}

/// Why a handler failed, as the consumer takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// Which variant of `HandlerError` it is.
    pub kind: FailureKind,
    /// Its text, as the consumer shows it.
    pub reason: String,
}

/// The variants of [`HandlerError`](walpost_consumer::HandlerError). A panic and
/// a time-out are [`Retry`](Self::Retry).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// Tried again for ever; no attempt.
    Transient,
    /// An attempt; parked after the last.
    Retry,
    /// Parked at once.
    Park,
    /// Halts the partition.
    Halt,
}

impl Call {
    pub(crate) fn of(events: &[Event], outcome: Outcome) -> Self {
        let failure = match outcome {
            Outcome::Done => None,
            Outcome::Failed { kind, reason, .. } => {
                let kind = match kind {
                    Kind::Transient => FailureKind::Transient,
                    Kind::Retry => FailureKind::Retry,
                    Kind::Park => FailureKind::Park,
                    Kind::Halt => FailureKind::Halt,
                };
                Some(Failure { kind, reason })
            }
        };
        let event_ids = events.iter().map(|event| event.id().to_owned()).collect();
        Self { event_ids, failure }
    }
}

impl Report {
    /// How many failures of this kind the handler returned.
    pub fn failures(&self, kind: FailureKind) -> usize {
        let of_kind = |call: &&Call| call.failure.as_ref().is_some_and(|f| f.kind == kind);
        self.calls.iter().filter(of_kind).count()
    }

    /// That all events are done, `count` of them with an effect that was made now,
    /// and none parked.
    ///
    /// # Panics
    /// With the report, if not.
    #[track_caller]
    pub fn assert_applied(&self, count: u64) -> &Self {
        let is_so = self.applied == count && self.parked.is_empty() && self.waiting == 0;
        assert!(is_so && self.ending == Ending::Done, "expected {count} effects: {self}");
        self
    }

    /// That so many events were known by their ids, and the handler did not see
    /// them.
    ///
    /// # Panics
    /// With the report, if not.
    #[track_caller]
    pub fn assert_duplicates(&self, count: u64) -> &Self {
        assert!(self.duplicates == count, "expected {count} duplicates: {self}");
        self
    }

    /// That the event was parked, for a reason that contains `reason`.
    ///
    /// # Panics
    /// With the report, if not.
    #[track_caller]
    pub fn assert_parked(&self, event_id: &str, reason: &str) -> &Self {
        let is_it = |parked: &Parked| parked.event_id.as_deref() == Some(event_id);
        let found =
            self.parked.iter().any(|parked| is_it(parked) && parked.reason.contains(reason));
        assert!(found, "expected event {event_id} to be parked with {reason:?}: {self}");
        self
    }

    /// That a partition halted, for a reason that contains `reason`.
    ///
    /// # Panics
    /// With the report, if not.
    #[track_caller]
    pub fn assert_halted(&self, reason: &str) -> &Self {
        let halted = matches!(&self.ending, Ending::Halted { reason: why } if why.contains(reason));
        assert!(halted, "expected a halted partition with {reason:?}: {self}");
        self
    }

    /// The same delivery went on.
    pub(crate) fn followed_by(mut self, next: Self) -> Self {
        self.applied += next.applied;
        self.duplicates += next.duplicates;
        self.waiting += next.waiting;
        self.interrupted += next.interrupted;
        self.parked.extend(next.parked);
        self.calls.extend(next.calls);
        self.ending = next.ending;
        self
    }

    /// Why not everything is done, `None` if it is.
    pub(crate) fn unfinished(&self) -> Option<String> {
        match &self.ending {
            Ending::Done => None,
            Ending::Halted { reason } => Some(format!("the partition halts {reason}")),
            Ending::Transient { reason } => {
                Some(format!("a transient failure again and again: {reason}"))
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { applied, duplicates, waiting, parked, calls, interrupted, .. } = self;
        write!(
            f,
            "{applied} applied, {duplicates} duplicates, {} parked, {waiting} waiting behind \
             parked ones, {} calls of the handler, {interrupted} interruptions",
            parked.len(),
            calls.len()
        )?;
        for Parked { event_id, place, attempts, reason } in parked.iter().take(MAX_SHOWN) {
            let id = event_id.as_deref().unwrap_or("without an id");
            write!(f, "\n  parked: event {id} at {place} after {attempts} attempts: {reason}")?;
        }
        let failed =
            calls.iter().filter_map(|call| Some((&call.event_ids, call.failure.as_ref()?)));
        for (event_ids, Failure { kind, reason }) in failed.take(MAX_SHOWN) {
            let first = event_ids.first().map_or("none", String::as_str);
            let count = event_ids.len();
            write!(f, "\n  failed: {kind:?} with {count} events from {first} on: {reason}")?;
        }
        self.unfinished().map_or(Ok(()), |reason| write!(f, "\n  not done: {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_was_parked_and_why() {
        let parked = Parked {
            event_id: Some("7".into()),
            place: "orders[0]@3".into(),
            attempts: 5,
            reason: "no such customer".into(),
        };
        let report = Report { applied: 2, parked: vec![parked], ..Report::default() };
        let text = report.to_string();
        assert!(text.starts_with("2 applied, 0 duplicates, 1 parked"), "{text}");
        assert!(text.contains("event 7 at orders[0]@3 after 5 attempts: no such"), "{text}");
        report.assert_parked("7", "customer").assert_duplicates(0);
    }

    #[test]
    #[should_panic(expected = "expected 1 effects: 1 applied")]
    fn a_halted_delivery_is_not_applied() {
        let ending = Ending::Halted { reason: "why".into() };
        Report { applied: 1, ending, ..Report::default() }.assert_applied(1);
    }
}
