use walpost_event::{Bytes, Message};
use walpost_relay::Ticket;

use crate::lane::LaneId;

/// What a queued record takes beside its own bytes: librdkafka's message of
/// 176 bytes in its allocation, our [`Entry`], and its delivery report.
const RECORD_BYTES: usize = 256;
/// What librdkafka's list of headers takes, empty.
const HEADERS_BYTES: usize = 96;
/// What librdkafka's entry for one header takes beside name and value.
const HEADER_BYTES: usize = 80;

/// Index of a record in the [`Queue`]; travels through librdkafka and back.
pub(crate) type Slot = usize;

/// How large a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    /// Key, value and headers, as [`Message::size_bytes`] has it.
    pub(crate) record_bytes: usize,
    /// What it takes in memory while it is queued.
    pub(crate) queued_bytes: usize,
}

impl Size {
    pub(crate) fn of(message: &Message) -> Self {
        let part = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let mut record_bytes = part(&message.key) + part(&message.value);
        let mut overhead_bytes = RECORD_BYTES;
        if !message.headers.is_empty() {
            overhead_bytes += HEADERS_BYTES + HEADER_BYTES * message.headers.len();
        }
        for header in &message.headers {
            record_bytes += header.name.len() + part(&header.value);
        }
        Self { record_bytes, queued_bytes: record_bytes + overhead_bytes }
    }
}

/// A record on its way.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) ticket: Ticket,
    pub(crate) lane: LaneId,
    pub(crate) size: Size,
    pub(crate) has_key: bool,
}

/// The books on what librdkafka holds: each record from the moment it is taken
/// until its delivery report, with the size that it was counted with.
#[derive(Debug)]
pub(crate) struct Queue {
    max_bytes: usize,
    bytes: usize,
    entries: Vec<Option<Entry>>,
    free: Vec<Slot>,
}

impl Queue {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, bytes: 0, entries: Vec::new(), free: Vec::new() }
    }

    /// Records in the queue.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether a record may be added. One that is larger than the whole queue
    /// may when it is alone.
    pub(crate) fn has_room(&self, size: Size) -> bool {
        self.len() == 0 || self.bytes + size.queued_bytes <= self.max_bytes
    }

    pub(crate) fn add(&mut self, entry: Entry) -> Slot {
        self.bytes += entry.size.queued_bytes;
        match self.free.pop() {
            Some(slot) => {
                self.entries[slot] = Some(entry);
                slot
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() - 1
            }
        }
    }

    /// Takes a record out.
    ///
    /// # Panics
    /// If the slot is empty.
    pub(crate) fn remove(&mut self, slot: Slot) -> Entry {
        let entry = self.entries[slot].take().expect("librdkafka reports each record once");
        self.bytes -= entry.size.queued_bytes;
        self.free.push(slot);
        entry
    }
}

#[cfg(test)]
mod tests {
    use walpost_event::{Header, Headers};

    use super::*;

    fn message(value: usize, headers: &[(&str, usize)]) -> Message {
        let header = |(name, length): &(&str, usize)| Header {
            name: (*name).into(),
            value: Some(vec![0; *length].into()),
        };
        Message {
            topic: "t".into(),
            partition: None,
            key: Some(Bytes::from_static(b"key")),
            value: Some(vec![0; value].into()),
            headers: headers.iter().map(header).collect::<Headers>(),
            timestamp_ms: None,
        }
    }

    fn entry(ticket: Ticket, bytes: usize) -> Entry {
        let size = Size { record_bytes: bytes, queued_bytes: bytes };
        Entry { ticket, lane: 0, size, has_key: true }
    }

    #[test]
    fn headers_count_with_what_librdkafka_keeps_for_them() {
        let bare = Size::of(&message(10, &[]));
        assert_eq!(bare, Size { record_bytes: 13, queued_bytes: 13 + 256 });
        let message = message(10, &[("id", 36), ("eventType", 1_000)]);
        let size = Size::of(&message);
        assert_eq!(size.record_bytes, message.size_bytes());
        assert_eq!(size.queued_bytes, 13 + 2 + 36 + 9 + 1_000 + 256 + 96 + 2 * 80);
    }

    #[test]
    fn what_was_counted_is_given_back_in_any_order() {
        let mut queue = Queue::new(100);
        let slots: Vec<Slot> = (0..4).map(|ticket| queue.add(entry(ticket, 25))).collect();
        assert!(!queue.has_room(entry(4, 1).size), "the queue is full");
        for index in [2, 0] {
            assert_eq!(queue.remove(slots[index]).ticket, index as Ticket);
        }
        assert!(queue.has_room(entry(4, 50).size));
        assert!(!queue.has_room(entry(4, 51).size));
        assert!(slots.contains(&queue.add(entry(4, 50))), "a slot is used again");
        assert_eq!(queue.len(), 3);
    }

    #[test]
    fn a_record_beyond_the_bound_goes_alone() {
        let mut queue = Queue::new(100);
        assert!(queue.has_room(entry(0, 1_000).size));
        let slot = queue.add(entry(0, 1_000));
        assert!(!queue.has_room(entry(1, 0).size));
        queue.remove(slot);
        assert!(queue.has_room(entry(1, 1_000).size));
    }

    #[test]
    #[should_panic(expected = "librdkafka reports each record once")]
    fn a_second_report_is_noticed() {
        let mut queue = Queue::new(100);
        let slot = queue.add(entry(0, 1));
        queue.remove(slot);
        queue.remove(slot);
    }
}
