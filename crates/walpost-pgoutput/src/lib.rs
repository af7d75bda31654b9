//! Bytes of PostgreSQL's `pgoutput` plugin, protocol version 1 with logical
//! messages, to [`WalMessage`]s.
//!
//! No I/O and no clock. Values share the bytes they came in; none is copied or
//! checked for UTF-8. Malformed bytes give a [`DecodeError`] with the offset,
//! never a panic, and no length or count reserves memory for what has not come.
//!
//! ```
//! use walpost_pgoutput::{Bytes, Decoder, WalMessage};
//!
//! let mut frame = vec![b'B'];
//! frame.extend_from_slice(&0x16_B374_D848_u64.to_be_bytes());
//! frame.extend_from_slice(&0_i64.to_be_bytes());
//! frame.extend_from_slice(&731_u32.to_be_bytes());
//!
//! let message = Decoder::new().decode(Bytes::from(frame))?;
//! let WalMessage::Begin(begin) = message else { panic!("a begin") };
//! assert_eq!(begin.final_lsn.to_string(), "16/B374D848");
//! assert_eq!(begin.commit_time_us, 946_684_800_000_000);
//! # Ok::<(), walpost_pgoutput::DecodeError>(())
//! ```

mod decode;
mod error;
mod reader;
mod relation;
mod tuple;
mod wal_message;

pub use bytes::Bytes;

pub use crate::{
    decode::Decoder,
    error::{DecodeError, DecodeErrorKind},
    tuple::UNDECODABLE,
    wal_message::{Begin, Commit, LogicalMessage, Origin, Truncate, TypeName, WalMessage},
};
