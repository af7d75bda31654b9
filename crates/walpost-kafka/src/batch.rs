use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Kafka's `max.message.bytes` is 1,048,588 where nobody set it; the rest is
/// room for the framing of a batch.
pub(crate) const BATCH_BYTES: usize = 900_000;

/// What a broker refused as too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooLarge {
    /// This very record: it was alone in its batch.
    Record,
    /// A batch of perhaps several records, of which none need be too large.
    Batch,
}

/// Finds out what was too large. librdkafka adds no record to a batch that
/// would grow beyond `batch_bytes` by it, framing included, so one that has as
/// many bytes without it is alone.
pub(crate) fn too_large(record_bytes: usize, batch_bytes: usize) -> TooLarge {
    if record_bytes.max(1) >= batch_bytes { TooLarge::Record } else { TooLarge::Batch }
}

/// The bytes of a batch for the next producer, shared by all sessions of a
/// connector.
#[derive(Clone, Debug)]
pub(crate) struct BatchBytes(Arc<AtomicUsize>);

impl BatchBytes {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// After batches of `refused` bytes were refused by a topic that takes
    /// `limit` bytes, as far as is known.
    pub(crate) fn shrink(&self, refused: usize, limit: Option<usize>) {
        self.0.fetch_min(smaller(refused, limit), Ordering::Relaxed);
    }
}

/// Half of it, and no more than is known to fit. In the end each record is
/// alone, and the broker has looked at it.
fn smaller(refused: usize, limit: Option<usize>) -> usize {
    (refused / 2).min(limit.unwrap_or(usize::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_record_that_was_alone_is_to_blame() {
        assert_eq!(too_large(900_000, 900_000), TooLarge::Record);
        assert_eq!(too_large(899_999, 900_000), TooLarge::Batch);
        assert_eq!(too_large(0, 1), TooLarge::Record);
    }

    #[test]
    fn batches_shrink_until_each_record_is_alone() {
        let bytes = BatchBytes::new(900_000);
        let mut steps = 0;
        while too_large(500, bytes.get()) == TooLarge::Batch {
            bytes.shrink(bytes.get(), None);
            steps += 1;
        }
        assert_eq!(steps, 11);
        for _ in 0..20 {
            bytes.shrink(bytes.get(), None);
        }
        assert_eq!(bytes.get(), 1);
    }

    #[test]
    fn a_limit_that_is_known_is_reached_at_once_and_nothing_grows() {
        let bytes = BatchBytes::new(900_000);
        bytes.shrink(900_000, Some(10_000));
        assert_eq!(bytes.get(), 10_000);
        bytes.shrink(900_000, Some(1_000_000));
        assert_eq!(bytes.get(), 10_000, "a producer of before changes nothing");
    }
}
