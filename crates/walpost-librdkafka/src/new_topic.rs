use std::{
    collections::BTreeMap,
    ffi::{CStr, CString, c_char},
    slice,
    time::Duration,
};

use rdkafka::{
    client::{Client, ClientContext},
    error::RDKafkaErrorCode,
};
use rdkafka_sys as native;

use crate::owned::Owned;

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
    let client = client.native_ptr();
    let options = options(client, timeout)?;
    // SAFETY: the client lives as long as the borrow that it came from.
    let queue = unsafe { native::rd_kafka_queue_new(client) };
    let queue = Owned::new(queue, native::rd_kafka_queue_destroy);
    let mut pointers = [wanted.ptr()];
    // SAFETY: one topic lies at `pointers`, and all four are alive; topic and
    // options are copied, and the request keeps a reference to the queue of its own.
    unsafe {
        native::rd_kafka_CreateTopics(
            client,
            pointers.as_mut_ptr(),
            pointers.len(),
            options.ptr(),
            queue.ptr(),
        );
    }
    // SAFETY: the queue is alive.
    let event = unsafe { native::rd_kafka_queue_poll(queue.ptr(), milliseconds(timeout)) };
    if event.is_null() {
        return Err(RDKafkaErrorCode::OperationTimedOut.into());
    }
    let event = Owned::new(event, native::rd_kafka_event_destroy);
    // SAFETY: the event is alive.
    let error = unsafe { native::rd_kafka_event_error(event.ptr()) };
    // SAFETY: as above; its text lives as long.
    let text = unsafe { native::rd_kafka_event_error_string(event.ptr()) };
    // SAFETY: a null, or a C string owned by the event.
    unsafe { told(error, text) }?;
    // SAFETY: the event is alive; another type of event gives a null.
    let result = unsafe { native::rd_kafka_event_CreateTopics_result(event.ptr()) };
    if result.is_null() {
        return Err(RDKafkaErrorCode::Fail.into());
    }
    let mut count = 0;
    // SAFETY: the result lives as long as the event, `count` is written.
    let first = unsafe { native::rd_kafka_CreateTopics_result_topics(result, &raw mut count) };
    if first.is_null() || count == 0 {
        return Err(RDKafkaErrorCode::Fail.into());
    }
    // SAFETY: `count` pointers lie at `first`, owned by the event.
    for made in unsafe { slice::from_raw_parts(first, count) } {
        // SAFETY: each points to what lives as long as the event.
        let error = unsafe { native::rd_kafka_topic_result_error(*made) };
        // SAFETY: as above, and so does its text.
        let text = unsafe { native::rd_kafka_topic_result_error_string(*made) };
        // SAFETY: a null, or a C string owned by the event.
        unsafe { told(error, text) }?;
    }
    Ok(())
}

impl From<RDKafkaErrorCode> for NotCreated {
    fn from(code: RDKafkaErrorCode) -> Self {
        Self { code, detail: code.to_string() }
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
        check(unsafe {
            native::rd_kafka_NewTopic_set_config(wanted.ptr(), setting.as_ptr(), value.as_ptr())
        })?;
    }
    Ok(wanted)
}

fn options(
    client: *mut native::rd_kafka_t,
    timeout: Duration,
) -> Result<Owned<native::rd_kafka_AdminOptions_t>, NotCreated> {
    let operation = native::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_CREATETOPICS;
    let mut message: [c_char; 256] = [0; 256];
    // SAFETY: the caller's client is alive.
    let options = unsafe { native::rd_kafka_AdminOptions_new(client, operation) };
    let options = Owned::new(options, native::rd_kafka_AdminOptions_destroy);
    // SAFETY: the options are alive, and `message` has the length given.
    check(unsafe {
        native::rd_kafka_AdminOptions_set_request_timeout(
            options.ptr(),
            milliseconds(timeout),
            message.as_mut_ptr(),
            message.len(),
        )
    })?;
    // SAFETY: as above.
    check(unsafe {
        native::rd_kafka_AdminOptions_set_operation_timeout(
            options.ptr(),
            milliseconds(timeout / 2),
            message.as_mut_ptr(),
            message.len(),
        )
    })?;
    Ok(options)
}

/// # Safety
/// `text` is a null, or a C string.
unsafe fn told(error: native::RDKafkaRespErr, text: *const c_char) -> Result<(), NotCreated> {
    let Err(refused) = check(error) else { return Ok(()) };
    if text.is_null() {
        return Err(refused);
    }
    // SAFETY: not null, so a C string.
    let detail = unsafe { CStr::from_ptr(text) };
    Err(NotCreated { detail: detail.to_string_lossy().into_owned(), ..refused })
}

fn c_string(text: &str) -> Result<CString, NotCreated> {
    CString::new(text).map_err(|_| RDKafkaErrorCode::InvalidArgument.into())
}

fn milliseconds(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX).max(1)
}

fn check(error: native::RDKafkaRespErr) -> Result<(), NotCreated> {
    match RDKafkaErrorCode::from(error) {
        RDKafkaErrorCode::NoError => Ok(()),
        code => Err(code.into()),
    }
}
