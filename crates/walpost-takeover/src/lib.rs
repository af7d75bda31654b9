//! Where Debezium's PostgreSQL connector has stopped, and what that means for
//! whoever goes on with its replication slot.
//!
//! Kafka Connect keeps an offset for each source partition of a connector: a key
//! ([`OffsetKey`]) and a value ([`StoredOffset`]), both JSON, in a compacted topic
//! or, of a standalone worker, in a file ([`java_map`]). [`StoredOffset::boundary`]
//! says what is published by it; [`StoredOffset::at_end_of_transaction`] is what
//! Debezium has to find to go on behind somebody else.
//!
//! No I/O, no clock.
//!
//! ```
//! use walpost_takeover::{OffsetKey, StoredOffset};
//!
//! let key = OffsetKey::parse(br#"["orders",{"server":"shop"}]"#)?;
//! assert_eq!((key.connector.as_str(), key.topic_prefix()), ("orders", Some("shop")));
//!
//! let offset = StoredOffset::parse(
//!     br#"{"lsn":22950496,"lsn_proc":22950496,"lsn_commit":22950344,"txId":745,
//!         "messageType":"INSERT","lsn_events_processed":1,"ts_usec":1764000000000000}"#,
//! )?;
//! let boundary = offset.boundary()?;
//! assert_eq!(boundary.after.unwrap().to_string(), "0/15E31C8");
//! assert_eq!(boundary.inside.unwrap().xid, 745);
//! # Ok::<(), walpost_takeover::OffsetError>(())
//! ```

mod boundary;
mod error;
pub mod java_map;
mod key;
mod offset;

pub use crate::{
    boundary::{Boundary, Inside, Kind, Last, Reason},
    error::OffsetError,
    key::OffsetKey,
    offset::{Operation, SnapshotState, StoredOffset},
};
