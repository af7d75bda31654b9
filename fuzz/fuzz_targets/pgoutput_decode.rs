//! Messages of one session, each behind its length in two bytes. Decoding must
//! not panic, and no error may point behind the message.

#![no_main]

use libfuzzer_sys::fuzz_target;
use walpost_event::{Row, Value};
use walpost_pgoutput::{Bytes, Decoder, WalMessage};

fuzz_target!(|input: &[u8]| {
    let mut decoder = Decoder::new();
    let mut rest = input;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(after.len());
        let (frame, after) = after.split_at(length);
        match decoder.decode(Bytes::copy_from_slice(frame)) {
            Ok(WalMessage::Row(change)) => {
                read(&change.row);
                change.old.iter().for_each(read);
            }
            Ok(_) => {}
            Err(error) => assert!(error.offset() <= frame.len(), "{error}"),
        }
        rest = after;
    }
});

fn read(row: &Row) {
    let columns = row.relation().columns.len();
    let mut bytes = 0;
    for index in 0..columns {
        if let Value::Text(value) | Value::Binary(value) = row.value(index) {
            bytes += value.len();
        }
    }
    assert_eq!(bytes, row.size_bytes());
}
