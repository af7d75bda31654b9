use std::time::{Duration, Instant};

/// Index of a [`Lane`] within one sink.
pub(crate) type LaneId = u32;

/// How long after the last acknowledgement the broker is trusted to know the
/// producer. It forgets one that has not written to a partition for
/// `producer.id.expiration.ms`, by default a day.
const KNOWN_FOR: Duration = Duration::from_secs(3_600);

/// A topic-partition that this producer sends to.
///
/// A broker that does not know a producer accepts any first batch, also one
/// behind a batch that it refused. So a lane has one record alone on its way
/// until it is acknowledged, and again after it was idle for long.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Index of the topic.
    pub(crate) topic: usize,
    pub(crate) partition: i32,
    on_their_way: usize,
    acknowledged: Option<Instant>,
}

impl Lane {
    pub(crate) fn new(topic: usize, partition: i32) -> Self {
        Self { topic, partition, on_their_way: 0, acknowledged: None }
    }

    /// Whether a record may be sent now. Asks for the time only when none is on
    /// its way.
    pub(crate) fn may_send(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if self.on_their_way > 0 {
            return self.acknowledged.is_some();
        }
        if let Some(last) = self.acknowledged
            && now().saturating_duration_since(last) > KNOWN_FOR
        {
            self.acknowledged = None;
        }
        true
    }

    /// Whether the broker has acknowledged a record of this producer here.
    pub(crate) fn is_open(&self) -> bool {
        self.acknowledged.is_some()
    }

    /// Another producer begins here, which the broker does not know.
    pub(crate) fn begin_anew(&mut self) {
        self.acknowledged = None;
    }

    pub(crate) fn sent(&mut self) {
        self.on_their_way += 1;
    }

    pub(crate) fn settled(&mut self, is_acknowledged: bool, now: Instant) {
        self.on_their_way -= 1;
        if is_acknowledged {
            self.acknowledged = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_record_goes_alone_and_an_acknowledgement_opens_the_lane() {
        let start = Instant::now();
        let mut lane = Lane::new(0, 0);
        assert!(lane.may_send(|| start));
        lane.sent();
        assert!(!lane.may_send(|| start), "one is on its way and nothing is known");
        lane.settled(false, start);
        assert!(lane.may_send(|| start));
        lane.sent();
        assert!(!lane.may_send(|| start), "a failure is no acknowledgement");
        lane.settled(true, start);
        for _ in 0..3 {
            assert!(lane.may_send(|| start));
            lane.sent();
        }
    }

    #[test]
    fn after_a_long_time_without_a_record_one_goes_alone_again() {
        let start = Instant::now();
        let mut lane = Lane::new(0, 0);
        lane.sent();
        lane.settled(true, start);
        let late = start + KNOWN_FOR;
        assert!(lane.may_send(|| late));
        lane.sent();
        assert!(lane.may_send(|| late), "still known");
        lane.settled(true, late);
        let later = late + KNOWN_FOR + Duration::from_millis(1);
        assert!(lane.may_send(|| later));
        lane.sent();
        assert!(!lane.may_send(|| later), "known no longer");
        lane.settled(true, later);
        lane.sent();
        assert!(lane.may_send(|| later));
    }
}
