//! Events of one partition on their way from Kafka's thread to its task.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard},
};

use tokio::sync::Notify;

use crate::{Event, kafka::Signal};

/// A queue that is bounded in events and in bytes.
#[derive(Debug)]
pub(crate) struct Inbox {
    queue: Mutex<Queue>,
    filled: Notify,
    room: Signal,
    max_events: usize,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    bytes: usize,
    failure: Option<FetchFailure>,
}

/// Why no further event comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FetchFailure {
    /// The next offset is not in the log.
    OutOfRange,
    /// Anything that a new start may mend.
    Lost(String),
}

impl Inbox {
    /// `room` is signalled when events were taken.
    pub(crate) fn new(max_events: usize, max_bytes: usize, room: Signal) -> Self {
        let (queue, filled) = (Mutex::default(), Notify::new());
        Self { queue, filled, room, max_events, max_bytes }
    }

    /// Fills the queue from `next` while there is room. Returns the offset
    /// after the last event, if there was one.
    pub(crate) fn fill(&self, mut next: impl FnMut() -> Fetched) -> Option<i64> {
        let mut queue = self.lock();
        let mut end = None;
        while queue.failure.is_none()
            && queue.events.len() < self.max_events
            && queue.bytes < self.max_bytes
        {
            match next() {
                Fetched::Event(event) => {
                    queue.bytes += event.size_bytes();
                    end = Some(event.offset() + 1);
                    queue.events.push_back(event);
                }
                Fetched::Failed(failure) => queue.failure = Some(failure),
                Fetched::Nothing => break,
            }
        }
        if end.is_some() || queue.failure.is_some() {
            self.filled.notify_one();
        }
        end
    }

    /// Moves events to the end of `into` until it holds `max_events` of at
    /// most `max_bytes` (the first always), or the queue is empty. Whether
    /// `into` is full.
    pub(crate) fn take(
        &self,
        into: &mut Vec<Event>,
        max_events: usize,
        max_bytes: usize,
    ) -> Result<bool, FetchFailure> {
        let mut queue = self.lock();
        let mut bytes: usize = into.iter().map(Event::size_bytes).sum();
        let (mut taken, mut full) = (false, false);
        while into.len() < max_events {
            let Some(event) = queue.events.front() else { break };
            if !into.is_empty() && bytes + event.size_bytes() > max_bytes {
                full = true;
                break;
            }
            bytes += event.size_bytes();
            queue.bytes -= event.size_bytes();
            into.extend(queue.events.pop_front());
            taken = true;
        }
        let failure = queue.failure.clone().filter(|_| into.is_empty());
        drop(queue);
        if taken {
            self.room.notify();
        }
        failure.map_or(Ok(full || into.len() >= max_events), Err)
    }

    /// Waits until something may have come. Safe to cancel.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no code panics while it holds the lock")
    }
}

/// What a queue of librdkafka's had.
#[derive(Debug)]
pub(crate) enum Fetched {
    Event(Event),
    Failed(FetchFailure),
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(offset: i64) -> Event {
        Event::builder("t").position(0, offset).value(Some(&[0; 10])).build()
    }

    fn endless() -> impl FnMut() -> Fetched {
        let mut offset = 0;
        move || {
            offset += 1;
            Fetched::Event(event(offset - 1))
        }
    }

    #[test]
    fn is_bounded_in_events_and_in_bytes() {
        let inbox = Inbox::new(7, 1000, Signal::default());
        assert_eq!(inbox.fill(endless()), Some(7));
        let inbox = Inbox::new(1000, 45, Signal::default());
        assert_eq!(inbox.fill(endless()), Some(5));
        assert_eq!(inbox.fill(endless()), None);
    }

    #[test]
    fn takes_up_to_both_limits_but_always_one() {
        let inbox = Inbox::new(100, 1000, Signal::default());
        inbox.fill(endless());
        let mut batch = Vec::new();
        assert_eq!(inbox.take(&mut batch, 3, 1000), Ok(true));
        assert_eq!(batch.len(), 3);
        assert_eq!(inbox.take(&mut batch, 100, 45), Ok(true));
        assert_eq!(batch.len(), 4);
        let mut one = Vec::new();
        inbox.take(&mut one, 100, 1).unwrap();
        assert_eq!((one.len(), one[0].offset()), (1, 4));
    }

    #[test]
    fn a_failure_comes_after_the_events_before_it() {
        let inbox = Inbox::new(100, 1000, Signal::default());
        let mut fetched = vec![Fetched::Failed(FetchFailure::OutOfRange), Fetched::Event(event(0))];
        inbox.fill(|| fetched.pop().unwrap_or(Fetched::Nothing));
        let mut batch = Vec::new();
        assert_eq!(inbox.take(&mut batch, 100, 1000), Ok(false));
        assert_eq!(batch.len(), 1);
        batch.clear();
        assert_eq!(inbox.take(&mut batch, 100, 1000), Err(FetchFailure::OutOfRange));
    }
}
