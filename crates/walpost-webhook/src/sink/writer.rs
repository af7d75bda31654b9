//! Deliveries of many events in one statement; where one of them is refused, one
//! after the other.

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Client;
use walpost_relay::{DeliveryErrorKind, Ticket};

use crate::{Deliveries, NewDelivery, StoreError};

/// Bound on one statement: beyond it nobody knows whether it was committed.
const STATEMENT_LIMIT: Duration = Duration::from_secs(30);

/// What an event becomes.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) ticket: Ticket,
    pub(super) deliveries: Vec<NewDelivery>,
    pub(super) bytes: usize,
}

/// Writes deliveries over one connection.
pub(super) struct Writer {
    pub(super) client: Client,
    pub(super) deliveries: Deliveries,
}

/// What became of entries, in their order.
pub(super) struct Written {
    /// `None` where the connection is not to be used any more.
    pub(super) writer: Option<Writer>,
    pub(super) results: Vec<(Ticket, usize, Result<u64, Unwritten>)>,
}

/// Why an event has no deliveries, or is not known to have any.
#[derive(Clone, Debug)]
pub(super) struct Unwritten {
    pub(super) kind: DeliveryErrorKind,
    pub(super) detail: String,
}

impl Writer {
    pub(super) async fn write(self, entries: Vec<Entry>) -> Written {
        let all: Vec<NewDelivery> =
            entries.iter().flat_map(|entry| entry.deliveries.iter().cloned()).collect();
        match self.insert(&all).await {
            Ok(_) => {
                let result = |entry: Entry| {
                    let count = entry.deliveries.len() as u64;
                    (entry.ticket, entry.bytes, Ok(count))
                };
                Written { writer: Some(self), results: entries.into_iter().map(result).collect() }
            }
            Err(unwritten) if unwritten.kind == DeliveryErrorKind::Rejected => {
                self.write_each(entries).await
            }
            Err(unwritten) => {
                let result = |entry: Entry| (entry.ticket, entry.bytes, Err(unwritten.clone()));
                Written { writer: None, results: entries.into_iter().map(result).collect() }
            }
        }
    }

    /// Up to the first one that is refused: none behind it may be there before it.
    async fn write_each(self, entries: Vec<Entry>) -> Written {
        let mut refused = None;
        let mut results = Vec::with_capacity(entries.len());
        for entry in entries {
            let result = match &refused {
                Some(()) => Err(Unwritten {
                    kind: DeliveryErrorKind::NotSent,
                    detail: "an event before it was refused".to_owned(),
                }),
                None => self.insert(&entry.deliveries).await,
            };
            if result.is_err() {
                refused = Some(());
            }
            results.push((entry.ticket, entry.bytes, result));
        }
        let writer = if refused.is_none() { Some(self) } else { None };
        Written { writer, results }
    }

    async fn insert(&self, deliveries: &[NewDelivery]) -> Result<u64, Unwritten> {
        if deliveries.is_empty() {
            return Ok(0);
        }
        match timeout(STATEMENT_LIMIT, self.deliveries.insert_in_order(&self.client, deliveries))
            .await
        {
            Ok(Ok(_)) => Ok(deliveries.len() as u64),
            Ok(Err(error)) => Err(Unwritten { kind: kind(&error), detail: error.to_string() }),
            Err(_) => Err(Unwritten {
                kind: DeliveryErrorKind::Unknown,
                detail: format!("creating deliveries took longer than {STATEMENT_LIMIT:?}"),
            }),
        }
    }
}

fn kind(error: &StoreError) -> DeliveryErrorKind {
    match error {
        StoreError::Unavailable { .. } => DeliveryErrorKind::Unknown,
        StoreError::NotMigrated { .. } | StoreError::Denied { .. } => DeliveryErrorKind::Refused,
        StoreError::Bounds { .. }
        | StoreError::BodyTooLarge { .. }
        | StoreError::Refused { .. }
        | StoreError::Setting { .. } => DeliveryErrorKind::Rejected,
    }
}
