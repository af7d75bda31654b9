use crate::sink::{DeliveryError, DeliveryErrorKind};

/// What to do about a failed delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Start a new session at the checkpoint.
    Retry,
    /// Park this event, then start a new session.
    Park,
}

/// Turns a failed delivery into a decision. Pure, and the only place that does.
///
/// Nothing is skipped: whatever is not parked comes again from the WAL.
pub fn decide(error: &DeliveryError) -> Disposition {
    match error.kind {
        DeliveryErrorKind::Rejected => Disposition::Park,
        DeliveryErrorKind::NotSent | DeliveryErrorKind::Unknown | DeliveryErrorKind::Refused => {
            Disposition::Retry
        }
    }
}

/// Counts events parked one after the other.
///
/// More than `halt_after` in a row are no poison but a fault, such as a wrong
/// route: then the pipeline halts instead of parking the whole outbox.
#[derive(Debug)]
pub struct ParkStreak {
    halt_after: u32,
    in_a_row: u32,
}

impl ParkStreak {
    /// A streak that allows `halt_after` events.
    pub fn new(halt_after: u32) -> Self {
        Self { halt_after, in_a_row: 0 }
    }

    /// An event was sent.
    pub fn sent(&mut self) {
        self.in_a_row = 0;
    }

    /// An event is about to be parked: whether it may be.
    pub fn may_park(&mut self) -> bool {
        self.in_a_row += 1;
        self.in_a_row <= self.halt_after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: DeliveryErrorKind) -> DeliveryError {
        DeliveryError { kind, topic: "t".into(), detail: "x".into() }
    }

    #[test]
    fn only_a_message_that_was_looked_at_and_refused_is_parked() {
        assert_eq!(decide(&error(DeliveryErrorKind::Rejected)), Disposition::Park);
        for kind in
            [DeliveryErrorKind::NotSent, DeliveryErrorKind::Unknown, DeliveryErrorKind::Refused]
        {
            assert_eq!(decide(&error(kind)), Disposition::Retry, "{kind:?}");
        }
    }

    #[test]
    fn a_run_of_parked_events_ends_at_its_bound() {
        let mut streak = ParkStreak::new(2);
        assert!(streak.may_park());
        assert!(streak.may_park());
        assert!(!streak.may_park());
        streak.sent();
        assert!(streak.may_park());
    }
}
