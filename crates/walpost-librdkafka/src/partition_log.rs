use std::{ffi::CString, marker::PhantomData, ptr, slice, sync::Arc, time::Duration};

use rdkafka::{
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::KafkaError,
};
use rdkafka_sys as native;

use crate::{
    admin::{Event, Queue, check, poll},
    headers::{MessageHeaders, headers_of},
    owned::Owned,
};

/// One assigned partition of a consumer, read by itself.
///
/// Unlike rust-rdkafka's queue of a partition, it tells at which offset the end of
/// the log was met (`enable.partition.eof`): a leader that has just become one may
/// know of less than the one before, and an end is then none.
pub struct PartitionLog<C: ConsumerContext> {
    // Before the consumer: a queue must not outlive its client.
    queue: Queue,
    _consumer: Arc<BaseConsumer<C>>,
}

/// What a [`PartitionLog`] has brought.
#[derive(Debug)]
pub enum Read<'log> {
    /// A record.
    Record(LogRecord<'log>),
    /// There is nothing yet at this offset and behind it, as far as the leader says.
    End(i64),
    /// Something else, which may pass.
    Failed(KafkaError),
}

/// A record of a [`PartitionLog`].
#[derive(Debug)]
pub struct LogRecord<'log> {
    message: *const native::rd_kafka_message_t,
    // Owns the message.
    _event: Event,
    log: PhantomData<&'log ()>,
}

impl<C: ConsumerContext> PartitionLog<C> {
    /// Splits a partition off the rest of `consumer`, which from then on does not
    /// bring it; before it is assigned. `None` where the name contains a NUL.
    pub fn split(consumer: &Arc<BaseConsumer<C>>, topic: &str, partition: i32) -> Option<Self> {
        let name = CString::new(topic).ok()?;
        let client = consumer.client().native_ptr();
        // SAFETY: the client is alive, the name is a C string, and is copied.
        let queue =
            unsafe { native::rd_kafka_queue_get_partition(client, name.as_ptr(), partition) };
        if queue.is_null() {
            return None;
        }
        let queue = Owned::new(queue, native::rd_kafka_queue_destroy);
        // SAFETY: the queue is alive; a null is nobody to forward to.
        unsafe { native::rd_kafka_queue_forward(queue.ptr(), ptr::null_mut()) };
        Some(Self { queue, _consumer: consumer.clone() })
    }

    /// What has come, if anything has. Never waits.
    pub fn poll(&self) -> Option<Read<'_>> {
        loop {
            let event = poll(&self.queue, Duration::ZERO)?;
            // SAFETY: the event is alive.
            match unsafe { native::rd_kafka_event_type(event.ptr()) } {
                native::RD_KAFKA_EVENT_FETCH => {
                    if let Some(read) = fetched(event) {
                        return Some(read);
                    }
                }
                native::RD_KAFKA_EVENT_ERROR => return Some(failed(&event)),
                _ => {}
            }
        }
    }
}

impl<C: ConsumerContext> std::fmt::Debug for PartitionLog<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PartitionLog").field(&self.queue).finish()
    }
}

fn fetched<'log>(event: Event) -> Option<Read<'log>> {
    // SAFETY: the event is alive.
    let message = unsafe { native::rd_kafka_event_message_next(event.ptr()) };
    if message.is_null() {
        return None;
    }
    // SAFETY: the message is owned by the event.
    match check(unsafe { (*message).err }) {
        Ok(()) => Some(Read::Record(LogRecord { message, _event: event, log: PhantomData })),
        Err(code) => Some(Read::Failed(KafkaError::MessageConsumption(code))),
    }
}

fn failed<'log>(event: &Event) -> Read<'log> {
    // SAFETY: the event is alive.
    let error = unsafe { native::rd_kafka_event_error(event.ptr()) };
    let code = error.into();
    if error == native::RDKafkaRespErr::RD_KAFKA_RESP_ERR__PARTITION_EOF {
        // SAFETY: the event is alive; what is given is ours.
        let place = unsafe { native::rd_kafka_event_topic_partition(event.ptr()) };
        if !place.is_null() {
            let place = Owned::new(place, native::rd_kafka_topic_partition_destroy);
            // SAFETY: the place is alive.
            return Read::End(unsafe { (*place.ptr()).offset });
        }
    }
    // SAFETY: the event is alive.
    match unsafe { native::rd_kafka_event_error_is_fatal(event.ptr()) } {
        0 => Read::Failed(KafkaError::MessageConsumption(code)),
        _ => Read::Failed(KafkaError::MessageConsumptionFatal(code)),
    }
}

impl LogRecord<'_> {
    /// Its offset.
    pub fn offset(&self) -> i64 {
        // SAFETY: the message lives as long as the event that is kept.
        unsafe { (*self.message).offset }
    }

    /// Its key.
    pub fn key(&self) -> Option<&[u8]> {
        // SAFETY: as in `offset`.
        let message = unsafe { &*self.message };
        // SAFETY: the key and its length are of one message.
        unsafe { bytes(message.key.cast(), message.key_len) }
    }

    /// Its value.
    pub fn value(&self) -> Option<&[u8]> {
        // SAFETY: as in `offset`.
        let message = unsafe { &*self.message };
        // SAFETY: the value and its length are of one message.
        unsafe { bytes(message.payload.cast(), message.len) }
    }

    /// Its headers.
    pub fn headers(&self) -> MessageHeaders<'_> {
        // SAFETY: as in `offset`, and what is returned borrows the record.
        unsafe { headers_of(self.message) }
    }
}

/// `None` for a null.
///
/// # Safety
/// `length` bytes lie at `first` unless it is null, for as long as they are used.
unsafe fn bytes<'a>(first: *const u8, length: usize) -> Option<&'a [u8]> {
    // SAFETY: by the contract of this function.
    (!first.is_null()).then(|| unsafe { slice::from_raw_parts(first, length) })
}
