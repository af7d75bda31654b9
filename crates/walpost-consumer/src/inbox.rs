//! Events of one partition on their way from Kafka's thread to its task.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use tokio::sync::Notify;

use crate::{Event, kafka::Signal, meter::Meter};

/// Events that are polled before they are handed over.
const MAX_POLLED_EVENTS: usize = 128;

/// A queue that is bounded in events and in bytes.
#[derive(Debug)]
pub(crate) struct Inbox {
    queue: Mutex<Queue>,
    filled: Notify,
    room: Signal,
    max_events: usize,
    max_bytes: usize,
    meter: Option<Arc<Meter>>,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    bytes: usize,
    failure: Option<FetchFailure>,
}

struct Room {
    events: usize,
    bytes: usize,
}

/// Why no further event comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FetchFailure {
    /// The next offset is not in the log.
    OutOfRange,
    /// The record at `offset`, whose effect was made, was appended under the
    /// leader epoch `then`; the one that is there was under `now`.
    Replaced { offset: i64, then: i32, now: i32 },
    /// Anything that a new start may mend.
    Lost(String),
}

impl Inbox {
    /// `room` is signalled when events were taken.
    pub(crate) fn new(max_events: usize, max_bytes: usize, room: Signal) -> Self {
        let (queue, filled) = (Mutex::default(), Notify::new());
        Self { queue, filled, room, max_events, max_bytes, meter: None }
    }

    /// Says there how far it was filled.
    pub(crate) fn measured_by(self, meter: Arc<Meter>) -> Self {
        Self { meter: Some(meter), ..self }
    }

    /// What has come ends before `offset`, and so does the log if `is_end`.
    pub(crate) fn read(&self, offset: i64, is_end: bool) {
        if let Some(meter) = &self.meter {
            meter.read(offset, is_end, Instant::now());
        }
    }

    /// Fills the queue from `next` while there is room, once over, by way of
    /// `polled`. `next` runs without the lock. Called by one thread alone, and
    /// all others only take: so there is room for what was seen to have some.
    pub(crate) fn fill(&self, polled: &mut Vec<Event>, mut next: impl FnMut() -> Fetched) {
        let mut filled_events = 0;
        while filled_events < self.max_events {
            let Some(room) = self.room_for() else { return };
            let (mut bytes, mut failure) = (0, None);
            while polled.len() < room.events && bytes < room.bytes && failure.is_none() {
                match next() {
                    Fetched::Event(event) => {
                        bytes += event.size_bytes();
                        polled.push(event);
                    }
                    Fetched::Failed(failed) => failure = Some(failed),
                    Fetched::Nothing | Fetched::End => break,
                }
            }
            let more = polled.len() >= MAX_POLLED_EVENTS && failure.is_none();
            if polled.is_empty() && failure.is_none() {
                return;
            }
            filled_events += polled.len();
            let mut queue = self.lock();
            queue.bytes += bytes;
            queue.events.extend(polled.drain(..));
            queue.failure = failure;
            drop(queue);
            self.filled.notify_one();
            if !more {
                return;
            }
        }
    }

    /// No further event comes.
    pub(crate) fn fail(&self, failure: FetchFailure) {
        self.lock().failure.get_or_insert(failure);
        self.filled.notify_one();
    }

    /// How much may be polled at once, `None` for nothing.
    fn room_for(&self) -> Option<Room> {
        let queue = self.lock();
        let room = Room {
            events: self.max_events.saturating_sub(queue.events.len()).min(MAX_POLLED_EVENTS),
            bytes: self.max_bytes.saturating_sub(queue.bytes),
        };
        (queue.failure.is_none() && room.events > 0 && room.bytes > 0).then_some(room)
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
    /// The log ends here, for now.
    End,
    Nothing,
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, mpsc},
        thread,
        time::Duration,
    };

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

    fn fill(inbox: &Inbox, next: impl FnMut() -> Fetched) {
        inbox.fill(&mut Vec::new(), next);
    }

    fn held(inbox: &Inbox) -> usize {
        inbox.lock().events.len()
    }

    #[test]
    fn is_bounded_in_events_and_in_bytes() {
        let inbox = Inbox::new(300, 100_000, Signal::default());
        fill(&inbox, endless());
        assert_eq!(held(&inbox), 300);
        let inbox = Inbox::new(1000, 45, Signal::default());
        fill(&inbox, endless());
        assert_eq!(held(&inbox), 5);
        fill(&inbox, endless());
        assert_eq!(held(&inbox), 5);
    }

    #[test]
    fn nobody_waits_behind_a_poll() {
        let inbox = Arc::new(Inbox::new(100, 1000, Signal::default()));
        fill(&inbox, endless());
        let (mut events, mut batch) = (endless(), Vec::new());
        inbox.take(&mut batch, 50, 1000).unwrap();
        fill(&inbox, || {
            let (taker, (sender, taken)) = (Arc::clone(&inbox), mpsc::channel());
            thread::spawn(move || sender.send(taker.take(&mut Vec::new(), 1, 1000)));
            let taken = taken.recv_timeout(Duration::from_secs(10));
            assert_eq!(taken, Ok(Ok(true)), "the queue is locked while its source is polled");
            events()
        });
    }

    #[test]
    fn takes_up_to_both_limits_but_always_one() {
        let inbox = Inbox::new(100, 1000, Signal::default());
        fill(&inbox, endless());
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
        fill(&inbox, || fetched.pop().unwrap_or(Fetched::Nothing));
        let mut batch = Vec::new();
        assert_eq!(inbox.take(&mut batch, 100, 1000), Ok(false));
        assert_eq!(batch.len(), 1);
        batch.clear();
        assert_eq!(inbox.take(&mut batch, 100, 1000), Err(FetchFailure::OutOfRange));
    }
}
