//! Destinations, and how much waits for each.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use tokio_postgres::{
    Client, Row,
    types::{ToSql, Type},
};

use super::{Deliveries, StoreError};
use crate::Order;

/// Deliveries of a state that an operator's look counts at most.
const COUNTED_MAX: i64 = 100_000;
/// The same of the watch, which looks again and again.
const WATCHED_MAX: i64 = 10_000;

/// How a destination is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestinationState {
    /// What is for it is sent.
    Active,
    /// What is for it is held.
    Disabled,
    /// There are deliveries for it, and no processor has ever had it.
    New,
}

impl DestinationState {
    /// `active`, `disabled` or `new`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Disabled => "disabled",
            Self::New => "new",
        }
    }
}

/// How much of a destination's deliveries is not done.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DestinationBacklog {
    /// Its name.
    pub destination: String,
    /// How it is.
    pub state: DestinationState,
    /// Why it is disabled.
    pub reason: Option<String>,
    /// When it was last enabled or disabled, or became known.
    pub changed_at: Option<SystemTime>,
    /// Deliveries that wait for an attempt: as the others up to the bound of the
    /// function that counts.
    pub pending: u64,
    /// Deliveries of which an attempt is being made.
    pub sending: u64,
    /// Deliveries without a further attempt.
    pub failed: u64,
    /// Deliveries that wait until the destination is enabled.
    pub held: u64,
    /// Deliveries of which nobody knows whether they arrived.
    pub unknown: u64,
    /// What goes in order, as its processor has it.
    pub order: Order,
    /// Of the pending ones those that wait for another one, as far as a processor has
    /// looked at them: it does once they are due.
    pub blocked: u64,
    /// How long the oldest pending one waits, of those that were counted: since it
    /// was created, or before its first attempt, also after a retry by hand, since
    /// that was due; 0 when there is none.
    pub oldest_pending: Duration,
}

/// What an operator sees of a destination.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DestinationEntry {
    /// What is not done, up to 100,000 of each state.
    pub backlog: DestinationBacklog,
    /// What arrived within the last 24 hours: of the last 100,000 deliveries to
    /// all destinations.
    pub delivered_day: u64,
    /// The last failure of a delivery that is not done.
    pub last_error: Option<LastError>,
    /// While the breaker of one of its senders is open: until when or so nothing but
    /// probes is sent, as the last sender that noted it has it.
    pub breaker_open_until: Option<SystemTime>,
}

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastError {
    /// A short name: see [`Outcome::name`](crate::Outcome::name).
    pub outcome: String,
    /// What the receiver answered.
    pub status: Option<u16>,
    /// When it ended.
    pub at: SystemTime,
}

impl Deliveries {
    /// Every destination that has a row or something pending, by name.
    ///
    /// # Errors
    /// When they cannot be read: the role has to be a `reader` at least.
    pub async fn destinations(&self, client: &Client) -> Result<Vec<DestinationEntry>, StoreError> {
        let rows =
            self.places(client, &self.sql.operator.destinations, (None, COUNTED_MAX)).await?;
        Ok(rows.iter().map(DestinationEntry::read).collect())
    }

    /// What is not done of one destination, up to 100,000 deliveries of each
    /// state; `None` where it has no row and nothing is pending for it.
    ///
    /// # Errors
    /// As [`Deliveries::destinations`].
    pub async fn destination(
        &self,
        client: &Client,
        destination: &str,
    ) -> Result<Option<DestinationBacklog>, StoreError> {
        let which = (Some(destination), COUNTED_MAX);
        let rows = self.places(client, &self.sql.operator.backlog, which).await?;
        Ok(rows.first().map(DestinationBacklog::read))
    }

    /// What is not done of every destination, up to 10,000 deliveries of each
    /// state: by indexes alone, for those who look often.
    ///
    /// # Errors
    /// As [`Deliveries::destinations`].
    pub async fn backlog(&self, client: &Client) -> Result<Vec<DestinationBacklog>, StoreError> {
        let rows = self.places(client, &self.sql.operator.backlog, (None, WATCHED_MAX)).await?;
        Ok(rows.iter().map(DestinationBacklog::read).collect())
    }

    async fn places(
        &self,
        client: &Client,
        sql: &str,
        (destination, limit): (Option<&str>, i64),
    ) -> Result<Vec<Row>, StoreError> {
        let parameters: [(&(dyn ToSql + Sync), Type); 2] =
            [(&destination, Type::TEXT), (&limit, Type::INT8)];
        let rows = client.query_typed(sql, &parameters).await;
        rows.map_err(|error| self.error("reading destinations", "reader", &error))
    }
}

impl DestinationBacklog {
    /// Whether something waits for it and it is none of those that are configured, where
    /// that is known.
    pub fn is_unconfigured(&self, configured: Option<&BTreeSet<String>>) -> bool {
        let waits = self.pending + self.sending + self.held > 0;
        waits && configured.is_some_and(|names| !names.contains(&self.destination))
    }

    fn read(row: &Row) -> Self {
        let count = |index: usize| u64::try_from(row.get::<_, i64>(index)).unwrap_or_default();
        let state = match row.get(1) {
            "new" => DestinationState::New,
            "disabled" => DestinationState::Disabled,
            _ => DestinationState::Active,
        };
        let oldest_s: f64 = row.get(9);
        Self {
            destination: row.get(0),
            state,
            reason: row.get(2),
            changed_at: row.get(3),
            pending: count(4),
            sending: count(5),
            failed: count(6),
            held: count(7),
            unknown: count(8),
            order: match row.get(10) {
                "key" => Order::Key,
                "all" => Order::All,
                _ => Order::None,
            },
            blocked: count(11),
            oldest_pending: Duration::try_from_secs_f64(oldest_s).unwrap_or_default(),
        }
    }
}

impl DestinationEntry {
    fn read(row: &Row) -> Self {
        let status: Option<i32> = row.get(14);
        let last_error = row.get::<_, Option<String>>(13).map(|outcome| LastError {
            outcome,
            status: status.and_then(|status| u16::try_from(status).ok()),
            at: row.get(15),
        });
        Self {
            backlog: DestinationBacklog::read(row),
            delivered_day: u64::try_from(row.get::<_, i64>(12)).unwrap_or_default(),
            last_error,
            breaker_open_until: row.get(16),
        }
    }
}
