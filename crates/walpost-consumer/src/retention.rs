//! How long effects are remembered, and for how long they have to be: pure.

use walpost_librdkafka::Kept;

use crate::Error;

/// Longest time that can be asked for, in days: a century.
const MAX_DAYS: u32 = 36_500;
const DAY_MS: u64 = 86_400_000;

/// How long a consumer remembers which events have had their effect.
///
/// It need remember an event as long as a record of it may be read: as long as
/// its topics keep records, and that again for copies that are published later,
/// as by `walpost replay`. [`Consumer::run`](crate::Consumer::run) asks the
/// brokers for the former, and ends with an error that has the figures when
/// effects would be forgotten earlier.
///
/// What leaves are effects older than [`days`](Self::days), of records that
/// their topics no longer hold. So no reset comes to a record whose effect is
/// forgotten.
///
/// ```
/// use walpost_consumer::{Consumer, Retention};
///
/// // Kafka keeps 7 days and up to 7 more; the outbox can be replayed for 14.
/// let builder = Consumer::builder("shipping").retention(Retention::days(30).replay_days(14));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Retention {
    days: u32,
    replay_days: u32,
    accept_duplicates: bool,
}

impl Retention {
    /// Effects are remembered for so many days, from 1 to 36,500, after they
    /// were made first.
    pub fn days(days: u32) -> Self {
        Self { days, replay_days: 0, accept_duplicates: false }
    }

    /// How many days after an event a copy of it may still be published: how far
    /// back outbox and archive are replayed. 0 unless set.
    pub fn replay_days(mut self, replay_days: u32) -> Self {
        self.replay_days = replay_days;
        self
    }

    /// Also where copies may be read that late, as of a topic that keeps its
    /// records for ever: such a copy then takes effect once more.
    pub fn accept_duplicates(mut self) -> Self {
        self.accept_duplicates = true;
        self
    }

    /// How long effects are remembered, in days.
    #[doc(hidden)]
    pub fn keep_days(self) -> u32 {
        self.days
    }

    pub(crate) fn check_bounds(self) -> Result<(), Error> {
        let bounds = [("days", self.days, 1), ("replay_days", self.replay_days, 0)];
        for (name, value, min) in bounds {
            if !(min..=MAX_DAYS).contains(&value) {
                let problem = format!("{name} is {value}, use {min} to {MAX_DAYS}");
                return Err(Error::Setting { setting: "retention".to_owned(), problem });
            }
        }
        Ok(())
    }

    /// Whether that is long enough for what the topics keep.
    ///
    /// # Errors
    /// With the figures, if it is not.
    #[doc(hidden)]
    pub fn check(self, kept: &[Kept]) -> Result<(), String> {
        if self.accept_duplicates {
            return Ok(());
        }
        for topic in kept {
            let Kept { name, keeps } = topic;
            let Some(keeps_ms) = *keeps else {
                return Err(format!(
                    "topic {name} keeps records for ever (retention.ms = -1, or cleanup.policy \
                     compacts), so a copy of an event may be read at any time; leave retention \
                     out, or accept duplicates"
                ));
            };
            let topic_days = keeps_ms.div_ceil(DAY_MS);
            let needed = topic_days.saturating_add(self.replay_days.into());
            if u64::from(self.days) < needed {
                return Err(format!(
                    "effects would be remembered for {} days, and topic {name} keeps records for \
                     up to {topic_days} (retention.ms and segment.ms) and copies may be published \
                     for {}: use {needed} days at least, or accept duplicates",
                    self.days, self.replay_days
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_remembered_as_long_as_a_copy_may_be_read() {
        let week = "604800000";
        let topic = Kept::parse("orders", week, week, "delete");
        assert_eq!(topic.keeps, Some(14 * DAY_MS));
        let check = |retention: Retention| retention.check(std::slice::from_ref(&topic));
        assert_eq!(check(Retention::days(14)), Ok(()));
        assert_eq!(check(Retention::days(21).replay_days(7)), Ok(()));
        let text = check(Retention::days(20).replay_days(7)).unwrap_err();
        for part in ["for 20 days", "up to 14 ", "published for 7:", "use 21 days"] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        assert!(check(Retention::days(13)).is_err());
        assert_eq!(check(Retention::days(1).accept_duplicates()), Ok(()));
        // A part of a day counts.
        let topic = Kept::parse("orders", "1", "0", "delete");
        assert_eq!(Retention::days(1).check(std::slice::from_ref(&topic)), Ok(()));
        let text = Retention::days(1).replay_days(1).check(&[topic]).unwrap_err();
        assert!(text.contains("use 2 days"), "{text}");
    }

    #[test]
    fn what_is_kept_for_ever_is_never_forgotten() {
        for (retention, policy) in
            [("-1", "delete"), ("1", "compact"), ("1", "compact,delete"), ("", "delete")]
        {
            let topic = Kept::parse("orders", retention, "1", policy);
            assert_eq!(topic.keeps, None, "{retention} {policy}");
            let text = Retention::days(MAX_DAYS).check(&[topic]).unwrap_err();
            assert!(text.contains("for ever"), "{text}");
        }
    }

    #[test]
    fn bounds_are_checked() {
        for (retention, is_sane) in [
            (Retention::days(0), false),
            (Retention::days(1), true),
            (Retention::days(MAX_DAYS + 1), false),
            (Retention::days(9).replay_days(MAX_DAYS + 1), false),
        ] {
            assert_eq!(retention.check_bounds().is_ok(), is_sane, "{retention:?}");
        }
    }
}
