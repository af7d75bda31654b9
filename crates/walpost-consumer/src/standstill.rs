//! What halted partitions mean for the whole consumer: pure.

use std::time::{Duration, Instant};

use crate::{status::Halted, tell::Reminder};

/// How long every partition must be halted before the consumer ends: others
/// may be on their way to this member.
const ALL_HALTED_FOR_MS: u64 = 2_000;

/// Since when, and what was told of it.
#[derive(Debug, Default)]
pub(crate) struct Standstill {
    since: Option<Since>,
}

#[derive(Debug)]
struct Since {
    told: Reminder,
    all: Option<Instant>,
}

/// What to do about halted partitions.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Nothing,
    /// Tell once more that they are.
    Remind(Halted),
    /// None is left that goes on.
    End(Halted),
}

impl Standstill {
    /// Looks at what is halted, `None` for nothing.
    pub(crate) fn look(&mut self, halted: Option<Halted>, now: Instant) -> Step {
        let Some(halted) = halted else {
            self.since = None;
            return Step::Nothing;
        };
        // The partition itself has just told it.
        let since = self.since.get_or_insert(Since { told: Reminder::told(now), all: None });
        if halted.count < halted.of {
            since.all = None;
            return if since.told.is_due(now) { Step::Remind(halted) } else { Step::Nothing };
        }
        let all_since = *since.all.get_or_insert(now);
        if now.duration_since(all_since) >= Duration::from_millis(ALL_HALTED_FOR_MS) {
            return Step::End(halted);
        }
        Step::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TopicPartition;

    fn halted(count: usize, of: usize) -> Option<Halted> {
        let first = TopicPartition { topic: "t".into(), partition: 0 };
        Some(Halted { first, reason: "why".into(), count, of })
    }

    #[test]
    fn some_are_told_every_30_seconds_as_long_as_they_are_halted() {
        let start = Instant::now();
        let mut standstill = Standstill::default();
        let mut told = Vec::new();
        for tick in 0..400 {
            let now = start + Duration::from_millis(tick * 250);
            match standstill.look(halted(1, 3), now) {
                Step::Nothing => {}
                step => {
                    assert_eq!(Step::Remind(halted(1, 3).unwrap()), step);
                    told.push(tick / 4);
                }
            }
        }
        assert_eq!(told, [30, 60, 90]);
        let later = start + Duration::from_secs(200);
        assert_eq!(standstill.look(None, later), Step::Nothing);
        assert_eq!(standstill.look(halted(1, 3), later), Step::Nothing, "the partition tells it");
    }

    #[test]
    fn all_of_them_for_two_seconds_end_the_consumer() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut standstill = Standstill::default();
        assert_eq!(standstill.look(halted(2, 2), at(0)), Step::Nothing);
        assert_eq!(standstill.look(halted(2, 3), at(1_900)), Step::Nothing);
        assert_eq!(standstill.look(halted(3, 3), at(2_100)), Step::Nothing);
        assert_eq!(standstill.look(halted(3, 3), at(4_099)), Step::Nothing);
        assert_eq!(standstill.look(halted(3, 3), at(4_100)), Step::End(halted(3, 3).unwrap()));
    }
}
