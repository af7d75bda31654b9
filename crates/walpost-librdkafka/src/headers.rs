use std::{ffi::CStr, marker::PhantomData, ptr, slice};

use rdkafka::message::BorrowedMessage;
use rdkafka_sys::{
    RDKafkaRespErr, rd_kafka_header_get_all, rd_kafka_headers_t, rd_kafka_message_headers,
    rd_kafka_message_t,
};

/// Headers of a message in order, as bytes: a name, and a value or `None` for
/// null.
///
/// Unlike rust-rdkafka's accessor, a name that is no UTF-8 is no panic.
#[derive(Debug)]
pub struct MessageHeaders<'message> {
    headers: *const rd_kafka_headers_t,
    next: usize,
    message: PhantomData<&'message ()>,
}

/// Reads the headers of `message`.
pub fn message_headers<'message>(
    message: &'message BorrowedMessage<'_>,
) -> MessageHeaders<'message> {
    // SAFETY: the pointer of a `BorrowedMessage` is valid while it lives.
    unsafe { headers_of(message.ptr()) }
}

/// # Safety
/// The message lives as long as what is returned.
pub(crate) unsafe fn headers_of<'message>(
    message: *const rd_kafka_message_t,
) -> MessageHeaders<'message> {
    let mut headers = ptr::null_mut();
    // SAFETY: the message is alive; `headers` is written on success and stays null
    // otherwise.
    unsafe { rd_kafka_message_headers(message, &raw mut headers) };
    MessageHeaders { headers, next: 0, message: PhantomData }
}

impl<'message> Iterator for MessageHeaders<'message> {
    type Item = (&'message [u8], Option<&'message [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.headers.is_null() {
            return None;
        }
        let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the headers belong to the borrowed message; the three are
        // written on success.
        let error = unsafe {
            rd_kafka_header_get_all(
                self.headers,
                self.next,
                &raw mut name,
                &raw mut value,
                &raw mut size,
            )
        };
        if error != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
            return None;
        }
        self.next += 1;
        // SAFETY: a C string that belongs to the message.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes();
        let value = (!value.is_null()).then(|| {
            // SAFETY: `size` bytes lie at `value` and belong to the message.
            unsafe { slice::from_raw_parts(value.cast(), size) }
        });
        Some((name, value))
    }
}
