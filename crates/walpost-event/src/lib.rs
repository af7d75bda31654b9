//! The nouns of Walpost. No I/O, no async, no clock.
//!
//! An event is, one after another:
//!
//! 1. a [`RowChange`]: what a source read, one row of one relation,
//! 2. a [`Record`]: where the router sends it, not yet encoded,
//! 3. a [`Message`]: bytes, ready for a sink.
//!
//! An event is identified by its id alone where that
//! [is globally unique](is_globally_unique), else by its id and its table.
//!
//! A [`Position`] says where in the WAL an event stands. It means nothing
//! outside its history; see [`Position`].
//!
//! Two more things are alike everywhere: how long to wait before an attempt,
//! [`RetrySchedule`] with [`jitter`], the one function here that is random; and
//! how an error is printed, [`error_chain`].

mod chain;
mod identity;
mod lsn;
mod message;
mod position;
mod record;
mod relation;
mod row;
mod schedule;

pub use bytes::Bytes;

pub use crate::{
    chain::error_chain,
    identity::{GLOBALLY_UNIQUE_PATTERN, SOURCE_HEADER, is_globally_unique, source_of},
    lsn::{Lsn, ParseLsnError},
    message::{Header, Headers, Message},
    position::{Generation, ParsePositionError, Position},
    record::{Field, Identity, NamedField, Record, RecordValue},
    relation::{Column, Relation, ReplicaIdentity, type_oid},
    row::{Operation, Row, RowBuilder, RowChange, Value},
    schedule::{RetrySchedule, jitter},
};
