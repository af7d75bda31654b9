//! What Debezium has published beside what Walpost would have, record for record.
//!
//! Whoever reads both sides tells a [`Comparison`] of each event that Walpost has
//! made a record of, and of each record that Debezium has written, in the order in
//! which they come; it pairs them and says what [differs](Finding). The sides come
//! at their own pace: what has no partner waits for [`Settings::grace`], and only
//! while that partner could come. So much may wait on each side, and then the other
//! one is to be read first: [`Comparison::takes_events`],
//! [`Comparison::takes_records`].
//!
//! No I/O, no clock: the time is an argument, since any fixed moment.
//!
//! - Partners have the same topic and event id, the first header `id`. Without that
//!   header they are paired in order by topic and key.
//! - What Debezium writes a second time, as after a restart, is a duplicate.
//! - Of events from before the start nothing can be said; how they are told is in
//!   [`Comparison::begins_at`].
//!
//! ```
//! use std::time::Duration;
//!
//! use walpost_event::{Headers, Message, Position};
//! use walpost_shadow::{Comparison, Event, Expected, Observed, Settings};
//!
//! let message = |value: &str| Box::new(Message {
//!     topic: "order".into(),
//!     partition: None,
//!     key: Some("7".into()),
//!     value: Some(value.to_owned().into()),
//!     headers: Headers::new(),
//!     timestamp_ms: None,
//! });
//! let mut comparison = Comparison::new(Settings::new(|_, _| 0));
//! comparison.set_partitions("order", 1);
//! let position = Position { commit_lsn: 16.into(), ordinal: 0 };
//! let made = Event::Made(Expected { position, message: message("1") });
//! comparison.expect(Duration::ZERO, made);
//! comparison.observe(Duration::ZERO, Observed { partition: 0, offset: 3, message: message("1") });
//! assert_eq!(comparison.summary().equal, 1);
//! ```

mod comparison;
mod difference;
mod documented;
mod json_order;
mod lanes;
mod pace;
mod partitions;
mod recent;
mod record;
mod summary;
mod topics;
mod waiting;

pub use crate::{
    comparison::{Comparison, Settings},
    difference::{Difference, Member, Part},
    documented::Documented,
    record::{Event, Expected, Finding, Observed, Parked},
    summary::Summary,
    topics::TopicPattern,
};
