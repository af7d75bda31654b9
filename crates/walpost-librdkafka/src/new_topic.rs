use std::{
    collections::BTreeMap,
    ffi::{CStr, CString, c_char},
    time::Duration,
};

use rdkafka::{
    client::{Client, ClientContext},
    error::RDKafkaErrorCode,
};
use rdkafka_sys as native;

use crate::{
    admin::{self, Operation, Options, Refusal},
    array::array,
    owned::Owned,
};

/// A topic that is to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewTopic<'a> {
    /// Its name.
    pub name: &'a str,
    /// How many partitions; `None` for the brokers' default.
    pub partitions: Option<i32>,
    /// How many copies of each; `None` for the brokers' default.
    pub replication: Option<i32>,
    /// Its settings, where they are not the brokers' defaults.
    pub config: &'a BTreeMap<String, String>,
}

/// Why a topic was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct NotCreated {
    /// What the brokers, or librdkafka, answered.
    pub code: RDKafkaErrorCode,
    /// The same in their words.
    pub detail: String,
}

/// Has the controller make a topic, by any client of any context. Blocks up to
/// `timeout`, for half of which the controller waits until all brokers know the
/// topic.
///
/// # Errors
/// [`NotCreated`], also where the topic is there already
/// ([`RDKafkaErrorCode::TopicAlreadyExists`]).
pub fn create_topic<C: ClientContext>(
    client: &Client<C>,
    topic: &NewTopic<'_>,
    timeout: Duration,
) -> Result<(), NotCreated> {
    let wanted = described(topic)?;
    let options = Options::new(client, Operation::RD_KAFKA_ADMIN_OP_CREATETOPICS, timeout)?
        .operation_timeout(timeout / 2)?;
    let mut pointers = [wanted.ptr()];
    // SAFETY: one topic lies at `pointers`, and all four are alive; topic and
    // options are copied, and the request keeps a reference to the queue of its own.
    let event = admin::answer(client, timeout, |client, queue| unsafe {
        native::rd_kafka_CreateTopics(
            client,
            pointers.as_mut_ptr(),
            pointers.len(),
            options.ptr(),
            queue,
        );
    })?;
    // SAFETY: the event is alive; another type of event gives a null.
    let result = unsafe { native::rd_kafka_event_CreateTopics_result(event.ptr()) };
    if result.is_null() {
        return Err(RDKafkaErrorCode::Fail.into());
    }
    let mut count = 0;
    // SAFETY: the result lives as long as the event, `count` is written.
    let first = unsafe { native::rd_kafka_CreateTopics_result_topics(result, &raw mut count) };
    // SAFETY: `count` pointers lie at `first`, owned by the event.
    let results = unsafe { array(first, count) };
    if results.is_empty() {
        return Err(RDKafkaErrorCode::Fail.into());
    }
    for made in results {
        // SAFETY: each points to what lives as long as the event.
        let error = unsafe { native::rd_kafka_topic_result_error(*made) };
        // SAFETY: as above, and so does its text.
        let text = unsafe { native::rd_kafka_topic_result_error_string(*made) };
        // SAFETY: a null, or a C string owned by the event.
        unsafe { admin::told(error, text) }?;
    }
    Ok(())
}

impl From<RDKafkaErrorCode> for NotCreated {
    fn from(code: RDKafkaErrorCode) -> Self {
        Refusal::from(code).into()
    }
}

impl From<Refusal> for NotCreated {
    fn from(Refusal { code, detail }: Refusal) -> Self {
        Self { code, detail }
    }
}

fn described(topic: &NewTopic<'_>) -> Result<Owned<native::rd_kafka_NewTopic_t>, NotCreated> {
    let name = c_string(topic.name)?;
    let mut message: [c_char; 256] = [0; 256];
    // SAFETY: the name is a C string, and is copied; `message` has the length given.
    let wanted = unsafe {
        native::rd_kafka_NewTopic_new(
            name.as_ptr(),
            topic.partitions.unwrap_or(-1),
            topic.replication.unwrap_or(-1),
            message.as_mut_ptr(),
            message.len(),
        )
    };
    if wanted.is_null() {
        // SAFETY: librdkafka has written a C string, if anything.
        let detail = unsafe { CStr::from_ptr(message.as_ptr()) }.to_string_lossy().into_owned();
        return Err(NotCreated { code: RDKafkaErrorCode::InvalidArgument, detail });
    }
    let wanted = Owned::new(wanted, native::rd_kafka_NewTopic_destroy);
    for (setting, value) in topic.config {
        let (setting, value) = (c_string(setting)?, c_string(value)?);
        // SAFETY: the topic is alive, both are C strings, and are copied.
        admin::check(unsafe {
            native::rd_kafka_NewTopic_set_config(wanted.ptr(), setting.as_ptr(), value.as_ptr())
        })?;
    }
    Ok(wanted)
}

fn c_string(text: &str) -> Result<CString, NotCreated> {
    CString::new(text).map_err(|_| RDKafkaErrorCode::InvalidArgument.into())
}
