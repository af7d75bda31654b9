use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

/// An encoded event, ready for a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Kafka topic.
    pub topic: Arc<str>,
    /// Explicit partition; `None` leaves it to the hash of the key.
    pub partition: Option<i32>,
    /// Key bytes; `None` for a null key.
    pub key: Option<Bytes>,
    /// Value bytes; `None` for a tombstone.
    pub value: Option<Bytes>,
    /// Headers in order; a name may occur more than once.
    pub headers: Headers,
    /// Timestamp in milliseconds since 1970; `None` for the time of sending.
    pub timestamp_ms: Option<i64>,
}

/// Headers of a [`Message`], in order.
pub type Headers = SmallVec<[Header; 4]>;

/// One header of a [`Message`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Name.
    pub name: Arc<str>,
    /// Value; `None` for a null header.
    pub value: Option<Bytes>,
}

impl Message {
    /// Bytes of key, value and headers together, without framing.
    pub fn size_bytes(&self) -> usize {
        let body = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let headers: usize =
            self.headers.iter().map(|header| header.name.len() + body(&header.value)).sum();
        body(&self.key) + body(&self.value) + headers
    }
}
