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
    /// With the bytes of each.
    pub(super) results: Vec<(Ticket, usize, Result<(), Unwritten>)>,
}

/// Why an event has no deliveries, or is not known to have any.
#[derive(Clone, Debug)]
pub(super) struct Unwritten {
    pub(super) kind: DeliveryErrorKind,
    pub(super) detail: String,
}

impl Writer {
    pub(super) async fn write(self, entries: Vec<Entry>) -> Written {
        let (mut all, mut ends) = (Vec::new(), Vec::with_capacity(entries.len()));
        for Entry { ticket, deliveries, bytes } in entries {
            all.extend(deliveries);
            ends.push((ticket, bytes, all.len()));
        }
        let result = self.insert(&all).await;
        if let Err(Unwritten { kind: DeliveryErrorKind::Rejected, .. }) = result {
            return self.write_each(&all, ends).await;
        }
        let writer = if result.is_ok() { Some(self) } else { None };
        let results = ends.into_iter().map(|(ticket, bytes, _)| (ticket, bytes, result.clone()));
        Written { writer, results: results.collect() }
    }

    /// Up to the first one that is refused: none behind it may be there before it.
    /// Each has the deliveries from the end of the one before to its own.
    async fn write_each(self, all: &[NewDelivery], ends: Vec<(Ticket, usize, usize)>) -> Written {
        let (mut is_refused, mut begin) = (false, 0);
        let mut results = Vec::with_capacity(ends.len());
        for (ticket, bytes, end) in ends {
            let result = match is_refused {
                true => Err(Unwritten {
                    kind: DeliveryErrorKind::NotSent,
                    detail: "an event before it was refused".to_owned(),
                }),
                false => self.insert(&all[begin..end]).await,
            };
            is_refused |= result.is_err();
            begin = end;
            results.push((ticket, bytes, result));
        }
        Written { writer: if is_refused { None } else { Some(self) }, results }
    }

    async fn insert(&self, deliveries: &[NewDelivery]) -> Result<(), Unwritten> {
        if deliveries.is_empty() {
            return Ok(());
        }
        let inserting = self.deliveries.insert_in_order(&self.client, deliveries);
        match timeout(STATEMENT_LIMIT, inserting).await {
            Ok(Ok(_)) => Ok(()),
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
