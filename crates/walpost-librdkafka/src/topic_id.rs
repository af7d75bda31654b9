use std::{
    ffi::{CStr, CString, c_char},
    fmt,
    time::Duration,
};

use rdkafka::{
    client::{Client, ClientContext},
    error::RDKafkaErrorCode,
    metadata::MetadataBroker,
};
use rdkafka_sys as native;

use crate::{
    admin::{self, Event, Operation, Options, check},
    array::array,
    owned::Owned,
};

/// The id that Kafka gives a topic when it is created: 128 random bits.
///
/// A topic that is deleted and created again has another one. Written as
/// Kafka's tools write it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TopicId(u128);

impl From<u128> for TopicId {
    fn from(bits: u128) -> Self {
        Self(bits)
    }
}

impl From<TopicId> for u128 {
    fn from(id: TopicId) -> Self {
        id.0
    }
}

impl fmt::Display for TopicId {
    /// Base64 of the URL alphabet without padding, 22 characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALPHABET: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut text = String::with_capacity(22);
        for shift in (0..22).map(|index| 122 - 6 * index) {
            let sextet = if shift >= 0 { self.0 >> shift } else { self.0 << -shift };
            text.push(char::from(ALPHABET[(sextet & 63) as usize]));
        }
        f.write_str(&text)
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicId({self})")
    }
}

/// Why a topic has no id to tell.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicIdError {
    /// The name cannot be a topic's.
    #[error("asking for a topic whose name contains a NUL byte")]
    Name,
    /// No answer in time.
    #[error("asking for topic ids got no answer within {timeout_ms} ms")]
    TimedOut {
        /// The limit that was given, in milliseconds.
        timeout_ms: u128,
    },
    /// The cluster answered with an error, for the request or for this topic.
    #[error("asking for the id of a topic failed: {0}")]
    Kafka(RDKafkaErrorCode),
    /// The brokers are older than topic ids (Kafka 2.8).
    #[error("the brokers do not know topic ids, Kafka 2.8 or newer is needed")]
    NotSupported,
}

/// Asks the cluster for the ids of `topics`; the answers come in their order.
///
/// Works with any client of any context, and needs no controller: any broker
/// knows. Blocks up to twice `timeout`.
///
/// # Errors
/// Of the whole request; those of single topics are in the answer.
pub fn topic_ids<C: ClientContext>(
    client: &Client<C>,
    topics: &[&str],
    timeout: Duration,
) -> Result<Vec<Result<TopicId, TopicIdError>>, TopicIdError> {
    if topics.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<CString> = topics
        .iter()
        .map(|topic| CString::new(*topic).map_err(|_| TopicIdError::Name))
        .collect::<Result<_, _>>()?;
    let metadata = client
        .fetch_metadata(topics.first().copied(), timeout)
        .map_err(|error| failed(error.rdkafka_error_code(), timeout))?;
    let broker = metadata.brokers().first().map(MetadataBroker::id);
    let broker = broker.ok_or(TopicIdError::Kafka(RDKafkaErrorCode::BrokerNotAvailable))?;
    let event = describe(client, &names, broker, timeout)?;
    let found = descriptions(&event)?;
    let id_of = |name: &CString| {
        let description = found
            .iter()
            .find(|description| description.name() == name.as_c_str())
            .ok_or(TopicIdError::Kafka(RDKafkaErrorCode::UnknownTopic))?;
        description.id()
    };
    Ok(names.iter().map(id_of).collect())
}

fn describe<C: ClientContext>(
    client: &Client<C>,
    names: &[CString],
    broker: i32,
    timeout: Duration,
) -> Result<Event, TopicIdError> {
    let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    // SAFETY: `pointers` holds as many C strings as said; they are copied.
    let collection = unsafe {
        native::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len())
    };
    let collection = Owned::new(collection, native::rd_kafka_TopicCollection_destroy);
    let options = Options::new(client, Operation::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS, timeout)
        .and_then(|options| options.broker(broker))
        .map_err(TopicIdError::Kafka)?;
    // SAFETY: all four are alive; librdkafka copies topics and options and
    // keeps a reference to the queue of its own.
    let event = admin::answer(client, timeout, |client, queue| unsafe {
        native::rd_kafka_DescribeTopics(client, collection.ptr(), options.ptr(), queue);
    });
    event.map_err(|refusal| failed(Some(refusal.code), timeout))
}

/// The topics of an answer.
pub(crate) fn descriptions(event: &Event) -> Result<Vec<Description<'_>>, TopicIdError> {
    // SAFETY: the event is alive; another type of event gives a null.
    let result = unsafe { native::rd_kafka_event_DescribeTopics_result(event.ptr()) };
    if result.is_null() {
        return Err(TopicIdError::Kafka(RDKafkaErrorCode::Fail));
    }
    let mut count = 0;
    // SAFETY: the result lives as long as the event, `count` is written.
    let first = unsafe { native::rd_kafka_DescribeTopics_result_topics(result, &raw mut count) };
    // SAFETY: `count` pointers lie at `first`, owned by the event.
    let pointers = unsafe { array(first, count) };
    // SAFETY: each points to a description that lives as long as the event.
    Ok(pointers.iter().map(|pointer| Description(unsafe { &**pointer })).collect())
}

/// One topic of an answer, alive as long as its event.
pub(crate) struct Description<'event>(&'event native::rd_kafka_TopicDescription_t);

impl Description<'_> {
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: the description is alive.
        let name = unsafe { native::rd_kafka_TopicDescription_name(self.0) };
        // SAFETY: a C string owned by the description.
        unsafe { CStr::from_ptr(name) }
    }

    pub(crate) fn id(&self) -> Result<TopicId, TopicIdError> {
        // SAFETY: the description is alive; a null means no error.
        let error = unsafe { native::rd_kafka_TopicDescription_error(self.0) };
        // SAFETY: the error is alive, and a null is code 0.
        check(unsafe { native::rd_kafka_error_code(error) }).map_err(TopicIdError::Kafka)?;
        // SAFETY: the description is alive.
        let id = unsafe { native::rd_kafka_TopicDescription_topic_id(self.0) };
        if id.is_null() {
            return Err(TopicIdError::NotSupported);
        }
        // SAFETY: the id is owned by the description.
        let high = unsafe { native::rd_kafka_Uuid_most_significant_bits(id) };
        // SAFETY: as above.
        let low = unsafe { native::rd_kafka_Uuid_least_significant_bits(id) };
        match u128::from(high.cast_unsigned()) << 64 | u128::from(low.cast_unsigned()) {
            0 => Err(TopicIdError::NotSupported),
            bits => Ok(TopicId(bits)),
        }
    }

    /// Numbers of the partitions.
    pub(crate) fn partitions(&self) -> Vec<i32> {
        let mut count = 0;
        // SAFETY: the description is alive, `count` is written.
        let first = unsafe { native::rd_kafka_TopicDescription_partitions(self.0, &raw mut count) };
        // SAFETY: `count` pointers lie at `first`, owned by the description.
        let pointers = unsafe { array(first, count) };
        // SAFETY: each points to a partition that the description owns.
        let number = |pointer| unsafe { native::rd_kafka_TopicPartitionInfo_partition(pointer) };
        pointers.iter().copied().map(number).collect()
    }
}

fn failed(code: Option<RDKafkaErrorCode>, timeout: Duration) -> TopicIdError {
    match code {
        Some(RDKafkaErrorCode::OperationTimedOut) | None => {
            TopicIdError::TimedOut { timeout_ms: timeout.as_millis() }
        }
        Some(code) => TopicIdError::Kafka(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_written_as_kafka_writes_a_uuid() {
        let id = TopicId(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210);
        assert_eq!(id.to_string(), "ASNFZ4mrze_-3LqYdlQyEA");
        assert_eq!(TopicId(1).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
    }
}
