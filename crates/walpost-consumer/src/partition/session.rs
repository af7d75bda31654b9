//! What a claim holds while it lasts.

use std::{sync::Arc, time::Instant};

use tokio::sync::oneshot;
use uuid::Uuid;

use super::{lane::Lane, looks::Looks};
use crate::{
    Event, inbox::Inbox, kafka::KafkaFailure, ledger::Ledger, marker::Owner, sql::ClaimKey,
};

/// A claimed partition, its connection, and its events.
pub(super) struct Session {
    /// The one that also moves the offset.
    pub(super) lane: Lane,
    pub(super) key: ClaimKey,
    pub(super) reset_id: Option<Uuid>,
    pub(super) owner: Owner,
    pub(super) ledger: Ledger,
    pub(super) looks: Looks,
    pub(super) inbox: Arc<Inbox>,
    /// Events that are next, in order.
    pub(super) batch: Vec<Event>,
    /// The commit to Kafka that is on its way.
    pub(super) answer: Option<oneshot::Receiver<Result<(), KafkaFailure>>>,
    /// No commit to Kafka before this, after one failed.
    pub(super) commit_after: Option<Instant>,
    /// No count of parked events before this.
    pub(super) count_after: Option<Instant>,
    /// No look at the owner before this.
    pub(super) look_after: Option<Instant>,
}
