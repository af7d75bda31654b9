//! What an operator looks at. None of it reads what is sent, but for the two
//! functions that are for that.

use std::time::{Duration, SystemTime};

use tokio_postgres::{Client, Row, types::Type};

use super::{Deliveries, DeliveryState, StoreError};

/// Which deliveries to list: the oldest first, unless the newest are asked for.
///
/// ```
/// use walpost_webhook::{DeliveryFilter, DeliveryState};
///
/// let filter = DeliveryFilter::new(100).states([DeliveryState::Failed]).destination("logistics");
/// assert_eq!(filter.limit(), 100);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct DeliveryFilter {
    states: Vec<DeliveryState>,
    destination: Option<String>,
    event_id: Option<String>,
    newest: bool,
    limit: u32,
}

impl DeliveryFilter {
    /// At most so many, in whatever state.
    pub fn new(limit: u32) -> Self {
        let states = DeliveryState::ALL.to_vec();
        Self { states, destination: None, event_id: None, newest: false, limit }
    }

    /// In one of these states; in any of them where there are none.
    pub fn states(mut self, states: impl IntoIterator<Item = DeliveryState>) -> Self {
        self.states = states.into_iter().collect();
        self.states.sort_unstable();
        self.states.dedup();
        if self.states.is_empty() {
            self.states = DeliveryState::ALL.to_vec();
        }
        self
    }

    /// To this destination.
    pub fn destination(mut self, destination: impl Into<String>) -> Self {
        self.destination = Some(destination.into());
        self
    }

    /// Of the events of this id, whatever their source. Only with it those in the archive
    /// are listed as well.
    pub fn event_id(mut self, event_id: impl Into<String>) -> Self {
        self.event_id = Some(event_id.into());
        self
    }

    /// Those that were created last, the newest first.
    pub fn newest(mut self) -> Self {
        self.newest = true;
        self
    }

    /// How many at most.
    pub fn limit(&self) -> u32 {
        self.limit
    }
}

/// A delivery, without what is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeliveryEntry {
    /// Its number, in the order of creation.
    pub id: i64,
    /// Where it goes.
    pub destination: String,
    /// Id of its event.
    pub event_id: String,
    /// What that id is unique in: the id space of the event's table, or its topic; empty
    /// where the id is globally unique, and where an application gave none.
    pub source: String,
    /// What happened.
    pub event_type: Option<String>,
    /// What the receiver knows it by, the same with each attempt.
    pub idempotency_key: String,
    /// How far it is.
    pub state: DeliveryState,
    /// Attempts since it was created, or since an operator last asked for a retry.
    pub attempts: u32,
    /// All attempts.
    pub claims: i64,
    /// When it was created, by the server's clock, as all times here.
    pub created_at: SystemTime,
    /// When it is sent next, where it is pending and not known to wait for another one.
    pub next_attempt_at: Option<SystemTime>,
    /// While sending: until when.
    pub lease_until: Option<SystemTime>,
    /// Name of the processor that claimed it last.
    pub claimed_by: Option<String>,
    /// When it arrived or failed.
    pub finished_at: Option<SystemTime>,
    /// Of the last attempt; `settled` where somebody has decided.
    pub outcome: Option<String>,
    /// What the receiver answered last, to an attempt that has ended.
    pub status: Option<u16>,
    /// Its own number of retries.
    pub retry_limit: Option<u32>,
    /// Its own wait before each.
    pub retry_wait: Option<Duration>,
    /// When it moved to the archive, without what was sent.
    pub archived_at: Option<SystemTime>,
    /// Those with the same one go in order; `None` in the archive.
    pub order_key: Option<String>,
    /// While pending: the delivery that has to be done before it, retried or settled,
    /// where it waits for one.
    pub blocked_by: Option<i64>,
}

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptEntry {
    /// From 1.
    pub number: i64,
    /// When it ended.
    pub ended_at: SystemTime,
    /// A short name: see [`Outcome::name`](crate::Outcome::name).
    pub outcome: String,
    /// What the receiver answered.
    pub status: Option<u16>,
    /// How long it took.
    pub elapsed: Duration,
    /// What went wrong.
    pub detail: Option<String>,
}

/// What is sent, and the last answer that was no success: the first bytes of each.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contents {
    /// The body; `None` where it was pruned.
    pub body: Option<Vec<u8>>,
    /// The answer.
    pub response: Option<Vec<u8>>,
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(Vec::len);
        f.debug_struct("Contents")
            .field("body_bytes", &bytes(&self.body))
            .field("response_bytes", &bytes(&self.response))
            .finish()
    }
}

impl Deliveries {
    /// Deliveries by a filter, in its order.
    ///
    /// # Errors
    /// When they cannot be read: the role has to be a `reader` at least.
    pub async fn list(
        &self,
        client: &Client,
        filter: &DeliveryFilter,
    ) -> Result<Vec<DeliveryEntry>, StoreError> {
        let DeliveryFilter { states, destination, event_id, .. } = filter;
        let limit = i64::from(filter.limit);
        let sql = &self.sql.operator;
        let rows = if event_id.is_some() {
            let names: Vec<&str> = states.iter().map(|state| state.as_str()).collect();
            let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 4] = [
                (destination, Type::TEXT),
                (&limit, Type::INT8),
                (event_id, Type::TEXT),
                (&names, Type::TEXT_ARRAY),
            ];
            client.query_typed(sql.list_by_event(filter.newest), &parameters).await
        } else {
            let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
                [(destination, Type::TEXT), (&limit, Type::INT8)];
            client.query_typed(&sql.list(states, filter.newest), &parameters).await
        };
        let rows = rows.map_err(|error| self.error("listing deliveries", "reader", &error))?;
        Ok(rows.iter().map(DeliveryEntry::read).collect())
    }

    /// The delivery of an id, also where it is in the archive.
    ///
    /// # Errors
    /// As [`Deliveries::list`].
    pub async fn show(
        &self,
        client: &Client,
        id: i64,
    ) -> Result<Option<DeliveryEntry>, StoreError> {
        let rows = client.query_typed(&self.sql.operator.show, &[(&id, Type::INT8)]).await;
        let rows = rows.map_err(|error| self.error("reading a delivery", "reader", &error))?;
        Ok(rows.first().map(DeliveryEntry::read))
    }

    /// What came of its attempts, the first one first: of more than 1,000 the last.
    ///
    /// # Errors
    /// As [`Deliveries::list`].
    pub async fn attempts(
        &self,
        client: &Client,
        of: &DeliveryEntry,
    ) -> Result<Vec<AttemptEntry>, StoreError> {
        let sql = &self.sql.operator;
        let sql = if of.archived_at.is_some() { &sql.archived_attempts } else { &sql.attempts };
        let rows = client.query_typed(sql, &[(&of.id, Type::INT8)]).await;
        let rows = rows.map_err(|error| self.error("reading attempts", "reader", &error))?;
        Ok(rows.iter().rev().map(AttemptEntry::read).collect())
    }

    /// Up to `max_bytes` of what is sent, and of the last answer that was no
    /// success.
    ///
    /// # Errors
    /// When they cannot be read: of the kinds of roles only a `sender` may.
    pub async fn contents(
        &self,
        client: &Client,
        id: i64,
        max_bytes: u32,
    ) -> Result<Contents, StoreError> {
        let max_bytes = i32::try_from(max_bytes).unwrap_or(i32::MAX);
        let first = async |sql: &str| {
            let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
                [(&id, Type::INT8), (&max_bytes, Type::INT4)];
            let rows = client.query_typed(sql, &parameters).await;
            let rows = rows.map_err(|error| self.error("reading contents", "sender", &error))?;
            Ok(rows.first().and_then(|row| row.get(0)))
        };
        let sql = &self.sql.operator;
        Ok(Contents { body: first(&sql.body).await?, response: first(&sql.response).await? })
    }
}

impl DeliveryEntry {
    fn read(row: &Row) -> Self {
        let wait: Option<i64> = row.get(15);
        let (limit, status): (Option<i32>, Option<i32>) = (row.get(14), row.get(20));
        Self {
            id: row.get(0),
            destination: row.get(1),
            event_id: row.get(2),
            event_type: row.get(3),
            idempotency_key: row.get(4),
            state: DeliveryState::of_column(row.get(5)),
            attempts: u32::try_from(row.get::<_, i32>(6)).unwrap_or_default(),
            claims: row.get(7),
            created_at: row.get(8),
            next_attempt_at: row.get(9),
            lease_until: row.get(10),
            claimed_by: row.get(11),
            finished_at: row.get(12),
            outcome: row.get(13),
            status: status.and_then(|status| u16::try_from(status).ok()),
            retry_limit: limit.and_then(|limit| u32::try_from(limit).ok()),
            retry_wait: wait.and_then(|wait| u64::try_from(wait).ok()).map(Duration::from_millis),
            archived_at: row.get(16),
            order_key: row.get(17),
            source: row.get(18),
            blocked_by: row.get(19),
        }
    }
}

impl AttemptEntry {
    fn read(row: &Row) -> Self {
        let status: Option<i32> = row.get(3);
        let elapsed_ms: i32 = row.get(4);
        Self {
            number: row.get(0),
            ended_at: row.get(1),
            outcome: row.get(2),
            status: status.and_then(|status| u16::try_from(status).ok()),
            elapsed: Duration::from_millis(u64::try_from(elapsed_ms).unwrap_or_default()),
            detail: row.get(5),
        }
    }
}
