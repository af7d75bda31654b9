use std::time::{Duration, Instant};

use walpost_event::Message;

use crate::queue::Slot;

/// How long a message waits for others, at most.
const GATHER: Duration = Duration::from_millis(100);

/// Messages that wait to be handed to librdkafka together.
///
/// librdkafka makes a request of each partition's batch, and a request costs a
/// broker about as much as hundreds of records. While the stream is behind,
/// nobody gains from sending at once; so records are kept for a moment, and the
/// brokers get a few large batches instead of many small ones.
///
/// Pure: the sink tells the time and sends what is [`due`](Self::due).
#[derive(Debug)]
pub(crate) struct Gather {
    is_on: bool,
    waiting: Vec<Waiting>,
    bytes: usize,
    max_bytes: usize,
    since: Option<Instant>,
}

/// A message that has its place in the queue and its partition.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) slot: Slot,
    pub(crate) partition: i32,
    pub(crate) message: Message,
}

impl Gather {
    /// No more than `max_bytes` wait, and the message that goes beyond.
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { is_on: false, waiting: Vec::new(), bytes: 0, max_bytes, since: None }
    }

    /// Whether messages wait from now on. Those that do already are due when
    /// they no longer should.
    pub(crate) fn turn(&mut self, on: bool) {
        self.is_on = on;
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(crate) fn add(
        &mut self,
        waiting: Waiting,
        queued_bytes: usize,
        now: impl FnOnce() -> Instant,
    ) {
        self.since.get_or_insert_with(now);
        self.bytes += queued_bytes;
        self.waiting.push(waiting);
    }

    /// How long until what waits is due; `None` when nothing does.
    pub(crate) fn due_in(&self, now: Instant) -> Option<Duration> {
        let since = self.since?;
        if !self.is_on || self.is_full() {
            return Some(Duration::ZERO);
        }
        Some(GATHER.saturating_sub(now.saturating_duration_since(since)))
    }

    /// Whether what waits is to be sent without a look at the clock.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= self.max_bytes
    }

    /// Everything that waits, in order. Give the memory back with
    /// [`recycle`](Self::recycle).
    pub(crate) fn take(&mut self) -> Vec<Waiting> {
        self.since = None;
        self.bytes = 0;
        std::mem::take(&mut self.waiting)
    }

    pub(crate) fn recycle(&mut self, mut empty: Vec<Waiting>) {
        empty.clear();
        self.waiting = empty;
    }
}

#[cfg(test)]
mod tests {
    use walpost_event::Headers;

    use super::*;

    fn waiting(slot: Slot) -> Waiting {
        let message = Message {
            topic: "t".into(),
            partition: None,
            key: None,
            value: None,
            headers: Headers::new(),
            timestamp_ms: None,
        };
        Waiting { slot, partition: 0, message }
    }

    #[test]
    fn what_waits_is_due_after_a_moment_or_when_there_is_much_of_it() {
        let start = Instant::now();
        let mut gather = Gather::new(100);
        gather.turn(true);
        assert_eq!(gather.due_in(start), None);
        gather.add(waiting(0), 60, || start);
        gather.add(waiting(1), 30, || start + GATHER);
        assert_eq!(gather.due_in(start + GATHER / 4), Some(GATHER / 4 * 3), "since the first");
        gather.add(waiting(2), 10, || start);
        assert_eq!(gather.due_in(start), Some(Duration::ZERO));
        let taken: Vec<Slot> = gather.take().iter().map(|waiting| waiting.slot).collect();
        assert_eq!((taken, gather.due_in(start)), (vec![0, 1, 2], None));
        assert!(!gather.is_full());
    }

    #[test]
    fn once_the_stream_keeps_up_what_waits_is_due() {
        let start = Instant::now();
        let mut gather = Gather::new(100);
        gather.turn(true);
        gather.add(waiting(0), 1, || start);
        gather.turn(false);
        assert_eq!(gather.due_in(start), Some(Duration::ZERO));
    }
}
