//! What every question of an administrator's needs, whatever it asks for.

use std::{
    ffi::{CStr, c_char, c_void},
    ptr,
    time::Duration,
};

use rdkafka::{
    client::{Client, ClientContext},
    error::RDKafkaErrorCode,
};
use rdkafka_sys as native;

use crate::owned::Owned;

/// What librdkafka puts on a queue.
pub(crate) type Event = Owned<native::rd_kafka_event_t>;
pub(crate) type Operation = native::rd_kafka_admin_op_t;
/// Where answers come to.
pub(crate) type Queue = Owned<native::rd_kafka_queue_t>;

/// What the cluster, or librdkafka, said instead of an answer.
pub(crate) struct Refusal {
    pub(crate) code: RDKafkaErrorCode,
    /// The same in their words.
    pub(crate) detail: String,
}

impl From<RDKafkaErrorCode> for Refusal {
    fn from(code: RDKafkaErrorCode) -> Self {
        Self { code, detail: code.to_string() }
    }
}

/// How a question is asked. Requests copy it.
pub(crate) struct Options(Owned<native::rd_kafka_AdminOptions_t>);

impl Options {
    /// Those of a request that waits up to `timeout` for its answer.
    pub(crate) fn new<C: ClientContext>(
        client: &Client<C>,
        operation: Operation,
        timeout: Duration,
    ) -> Result<Self, RDKafkaErrorCode> {
        // SAFETY: the client lives as long as its borrow.
        let options = unsafe { native::rd_kafka_AdminOptions_new(client.native_ptr(), operation) };
        let options = Self(Owned::new(options, native::rd_kafka_AdminOptions_destroy));
        let mut message: [c_char; 256] = [0; 256];
        // SAFETY: the options are alive, and `message` has the length given.
        check(unsafe {
            native::rd_kafka_AdminOptions_set_request_timeout(
                options.ptr(),
                milliseconds(timeout),
                message.as_mut_ptr(),
                message.len(),
            )
        })?;
        Ok(options)
    }

    /// How long the controller waits until all brokers know what it has done.
    pub(crate) fn operation_timeout(self, timeout: Duration) -> Result<Self, RDKafkaErrorCode> {
        let mut message: [c_char; 256] = [0; 256];
        // SAFETY: the options are alive, and `message` has the length given.
        check(unsafe {
            native::rd_kafka_AdminOptions_set_operation_timeout(
                self.ptr(),
                milliseconds(timeout),
                message.as_mut_ptr(),
                message.len(),
            )
        })?;
        Ok(self)
    }

    /// Who is asked, where it is not for librdkafka to choose.
    pub(crate) fn broker(self, broker: i32) -> Result<Self, RDKafkaErrorCode> {
        let mut message: [c_char; 256] = [0; 256];
        // SAFETY: the options are alive, and `message` has the length given.
        check(unsafe {
            native::rd_kafka_AdminOptions_set_broker(
                self.ptr(),
                broker,
                message.as_mut_ptr(),
                message.len(),
            )
        })?;
        Ok(self)
    }

    /// The isolation level of those who read what is asked for.
    pub(crate) fn isolation(
        self,
        isolation: native::rd_kafka_IsolationLevel_t,
    ) -> Result<Self, RDKafkaErrorCode> {
        // SAFETY: the options are alive.
        let refused =
            unsafe { native::rd_kafka_AdminOptions_set_isolation_level(self.ptr(), isolation) };
        if refused.is_null() {
            return Ok(self);
        }
        let refused = Owned::new(refused, native::rd_kafka_error_destroy);
        // SAFETY: the error is alive.
        check(unsafe { native::rd_kafka_error_code(refused.ptr()) })?;
        Ok(self)
    }

    /// The number that the answer carries.
    pub(crate) fn number(self, number: usize) -> Self {
        let number = ptr::without_provenance_mut::<c_void>(number);
        // SAFETY: the options are alive; librdkafka only hands the number on.
        unsafe { native::rd_kafka_AdminOptions_set_opaque(self.ptr(), number) };
        self
    }

    pub(crate) fn ptr(&self) -> *mut native::rd_kafka_AdminOptions_t {
        self.0.ptr()
    }
}

/// The answer to what `ask` sends by the client, to be answered to the queue that
/// it is given. Blocks up to `timeout`.
pub(crate) fn answer<C: ClientContext>(
    client: &Client<C>,
    timeout: Duration,
    ask: impl FnOnce(*mut native::rd_kafka_t, *mut native::rd_kafka_queue_t),
) -> Result<Event, Refusal> {
    let queue = queue(client);
    ask(client.native_ptr(), queue.ptr());
    next(&queue, timeout)
}

/// Must not outlive the client.
pub(crate) fn queue<C: ClientContext>(client: &Client<C>) -> Queue {
    // SAFETY: the client lives as long as its borrow.
    let queue = unsafe { native::rd_kafka_queue_new(client.native_ptr()) };
    Owned::new(queue, native::rd_kafka_queue_destroy)
}

/// The next answer. Blocks up to `timeout`.
pub(crate) fn next(queue: &Queue, timeout: Duration) -> Result<Event, Refusal> {
    let event = poll(queue, timeout).ok_or(RDKafkaErrorCode::OperationTimedOut)?;
    answered(&event)?;
    Ok(event)
}

/// The next event, if one comes within `timeout`.
pub(crate) fn poll(queue: &Queue, timeout: Duration) -> Option<Event> {
    let timeout_ms = if timeout.is_zero() { 0 } else { milliseconds(timeout) };
    // SAFETY: the queue is alive.
    let event = unsafe { native::rd_kafka_queue_poll(queue.ptr(), timeout_ms) };
    (!event.is_null()).then(|| Owned::new(event, native::rd_kafka_event_destroy))
}

/// Whether the question as a whole was answered.
pub(crate) fn answered(event: &Event) -> Result<(), Refusal> {
    // SAFETY: the event is alive.
    let error = unsafe { native::rd_kafka_event_error(event.ptr()) };
    // SAFETY: as above.
    let text = unsafe { native::rd_kafka_event_error_string(event.ptr()) };
    // SAFETY: a null, or a C string owned by the event.
    unsafe { told(error, text) }
}

/// An error with the text that comes with it.
///
/// # Safety
/// `text` is a null, or a C string.
pub(crate) unsafe fn told(
    error: native::RDKafkaRespErr,
    text: *const c_char,
) -> Result<(), Refusal> {
    let Err(code) = check(error) else { return Ok(()) };
    if text.is_null() {
        return Err(code.into());
    }
    // SAFETY: not null, so a C string.
    let detail = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    Err(Refusal { code, detail })
}

/// At least one, as librdkafka has it.
pub(crate) fn milliseconds(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX).max(1)
}

pub(crate) fn check(error: native::RDKafkaRespErr) -> Result<(), RDKafkaErrorCode> {
    match RDKafkaErrorCode::from(error) {
        RDKafkaErrorCode::NoError => Ok(()),
        code => Err(code),
    }
}
