//! Deliveries as rows: created with what they are about, claimed under a lease,
//! ended under the fence of their claim.

mod claim;
mod error;
mod finish;
mod look;
mod operator_sql;
mod order;
mod order_sql;
mod places;
mod prune;
mod settle;
mod sql;
mod state;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio_postgres::{
    GenericClient,
    types::{ToSql, Type},
};

use crate::Message;

pub use self::{
    error::StoreError,
    look::{AttemptEntry, Contents, DeliveryEntry, DeliveryFilter},
    places::{DestinationBacklog, DestinationEntry, DestinationState, LastError},
    prune::{Prune, Pruned},
    settle::{Decided, Settlement},
    state::{DeliveryState, NoSuchState},
};

pub(crate) use self::{
    claim::{Ask, Claim, Claimed, Lapsed, Line, Room, Unread},
    finish::{End, Ended, Finished},
    order::Looked,
    order_sql::BOUNDS,
    prune::{ATTEMPTED as PRUNING, Part},
};

use self::sql::{Insert, Sql};

const SCHEMA: &str = "walpost";
/// Bounds of the columns, in bytes.
const DESTINATION_BYTES_MAX: usize = 128;
const TEXT_BYTES_MAX: usize = 512;
const SOURCE_BYTES_MAX: usize = 1_000;
const PATH_BYTES_MAX: usize = 8_000;
/// Of a body, unless set.
const BODY_BYTES_MAX: usize = 1_024 * 1_024;

/// The tables of `walpost migrate --set webhook`.
///
/// ```no_run
/// use walpost_webhook::{Deliveries, Message, NewDelivery};
///
/// # async fn example(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let deliveries = Deliveries::new();
/// let message = Message::new("invoice.paid:7:1", br#"{"invoice":7}"#.as_slice());
/// let tx = client.transaction().await?;
/// // … what is true from now on …
/// let delivery = NewDelivery::new("logistics", "0192-7a", message);
/// assert_eq!(deliveries.insert(&tx, &[delivery]).await?, 1);
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Deliveries {
    schema: String,
    pub(crate) sql: Arc<Sql>,
    pub(crate) body_max_bytes: usize,
    /// Where it is not said, whoever creates them decides.
    notifies: Option<bool>,
}

/// An event for a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDelivery {
    /// Name of the destination: up to 128 bytes.
    pub destination: String,
    /// Id of the event: with source and destination, identity of the delivery.
    pub event_id: String,
    /// What tells equal ids of several tables apart, up to 1,000 bytes; empty for an
    /// id that is globally unique.
    pub source: String,
    /// What happened.
    pub event_type: Option<String>,
    /// What is sent.
    pub message: Message,
    /// Retries behind the first attempt, where the destination's do not count.
    pub retry_limit: Option<u32>,
    /// The wait before each of them, where the destination's do not count.
    pub retry_wait: Option<Duration>,
    /// When to try first; at once unless set.
    pub not_before: Option<SystemTime>,
    /// Those with the same one go to the destination in the order of their creation,
    /// where that keeps [an order](crate::Order::Key): 1 to 512 bytes. Whoever creates
    /// one holds back others who do, for this key, until the transaction has ended.
    pub order_key: Option<String>,
}

impl NewDelivery {
    /// To be sent at once, as its destination has it.
    pub fn new(
        destination: impl Into<String>,
        event_id: impl Into<String>,
        message: Message,
    ) -> Self {
        Self {
            destination: destination.into(),
            event_id: event_id.into(),
            source: String::new(),
            event_type: None,
            message,
            retry_limit: None,
            retry_wait: None,
            not_before: None,
            order_key: None,
        }
    }

    pub(crate) fn check(&self, body_max_bytes: usize) -> Result<(), StoreError> {
        let bytes = self.message.body.len();
        if bytes > body_max_bytes {
            return Err(StoreError::BodyTooLarge { bytes, max_bytes: body_max_bytes });
        }
        let Message { key, path, content_type, .. } = &self.message;
        let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        for (what, bytes, min_bytes, max_bytes) in [
            ("destination", self.destination.len(), 1, DESTINATION_BYTES_MAX),
            ("event_id", self.event_id.len(), 1, TEXT_BYTES_MAX),
            ("source", self.source.len(), 0, SOURCE_BYTES_MAX),
            ("event_type", of(&self.event_type), 0, TEXT_BYTES_MAX),
            ("idempotency_key", key.len(), 1, TEXT_BYTES_MAX),
            ("path", of(path), 0, PATH_BYTES_MAX),
            ("content_type", of(content_type), 0, TEXT_BYTES_MAX),
            ("order_key", self.order_key.as_ref().map_or(1, String::len), 1, TEXT_BYTES_MAX),
        ] {
            if !(min_bytes..=max_bytes).contains(&bytes) {
                return Err(StoreError::Bounds { what, bytes, min_bytes, max_bytes });
            }
        }
        Ok(())
    }
}

impl Default for Deliveries {
    fn default() -> Self {
        Self::new()
    }
}

impl Deliveries {
    /// In the schema `walpost`.
    pub fn new() -> Self {
        Self::in_schema(SCHEMA)
    }

    /// In another schema: its name as stored, without quotes.
    pub fn in_schema(schema: &str) -> Self {
        let sql = Arc::new(Sql::new(schema));
        let schema = schema.to_owned();
        Self { schema, sql, body_max_bytes: BODY_BYTES_MAX, notifies: None }
    }

    /// Their schema.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// Longest body of a delivery that [`insert`](Self::insert) takes; 1 MiB unless
    /// set. Receivers take no more than that as a rule: send what is larger as a
    /// link. Rows that were created by others may be larger.
    #[must_use]
    pub fn body_max_bytes(mut self, bytes: usize) -> Self {
        self.body_max_bytes = bytes;
        self
    }

    /// Whether [`insert`](Self::insert) wakes who sends, as a [`Bell`](crate::Bell) hears
    /// it. Unless set, an application's do not and those of the relay's sink do:
    /// PostgreSQL lets only one transaction with a NOTIFY commit at a time, which many
    /// writers feel more than 200 ms.
    #[must_use]
    pub fn notifies(mut self, notifies: bool) -> Self {
        self.notifies = Some(notifies);
        self
    }

    /// The same, where nobody has said so.
    #[cfg(feature = "relay")]
    pub(crate) fn notifies_unless_set(mut self) -> Self {
        self.notifies.get_or_insert(true);
        self
    }

    /// Whether the tables are there and may be written to.
    #[cfg(feature = "relay")]
    pub(crate) async fn probe(&self, client: &impl GenericClient) -> Result<(), StoreError> {
        let probed = client.execute_typed(&self.sql.probe, &[]).await;
        probed.map(drop).map_err(|error| self.error("creating deliveries", "writer", &error))
    }

    /// Creates deliveries, in the caller's transaction where `client` is one.
    /// Those that are there already stay as they are; returns how many are new.
    /// Those with an order key are created in the order given.
    ///
    /// # Errors
    /// When one is out of bounds, or the database refuses them.
    pub async fn insert(
        &self,
        client: &impl GenericClient,
        deliveries: &[NewDelivery],
    ) -> Result<u64, StoreError> {
        self.insert_by(client, &self.sql.insert, deliveries).await
    }

    /// The same in the order given, which ids and first attempts then have. Who
    /// creates the same ones in another order at once may deadlock with it.
    #[cfg(feature = "relay")]
    pub(crate) async fn insert_in_order(
        &self,
        client: &impl GenericClient,
        deliveries: &[NewDelivery],
    ) -> Result<u64, StoreError> {
        self.insert_by(client, &self.sql.insert_in_order, deliveries).await
    }

    async fn insert_by(
        &self,
        client: &impl GenericClient,
        sql: &Insert,
        deliveries: &[NewDelivery],
    ) -> Result<u64, StoreError> {
        for delivery in deliveries {
            delivery.check(self.body_max_bytes)?;
        }
        let column = |of: fn(&NewDelivery) -> Option<&str>| {
            deliveries.iter().map(of).collect::<Vec<Option<&str>>>()
        };
        let destinations = column(|delivery| Some(&delivery.destination));
        let events = column(|delivery| Some(&delivery.event_id));
        let types = column(|delivery| delivery.event_type.as_deref());
        let keys = column(|delivery| Some(&delivery.message.key));
        let paths = column(|delivery| delivery.message.path.as_deref());
        let contents = column(|delivery| delivery.message.content_type.as_deref());
        let bodies: Vec<&[u8]> = deliveries.iter().map(|each| &*each.message.body).collect();
        let limit = |limit: u32| i32::try_from(limit).unwrap_or(i32::MAX);
        let limits: Vec<_> = deliveries.iter().map(|each| each.retry_limit.map(limit)).collect();
        let waits: Vec<_> = deliveries.iter().map(|each| each.retry_wait.map(millis)).collect();
        let starts: Vec<_> = deliveries.iter().map(|each| each.not_before).collect();
        let orders = column(|delivery| delivery.order_key.as_deref());
        let notifies = self.notifies == Some(true);
        let sql = sql.of(notifies);
        let sources = column(|delivery| Some(&delivery.source));
        let parameters: [(&(dyn ToSql + Sync), Type); 12] = [
            (&destinations, Type::TEXT_ARRAY),
            (&events, Type::TEXT_ARRAY),
            (&types, Type::TEXT_ARRAY),
            (&keys, Type::TEXT_ARRAY),
            (&paths, Type::TEXT_ARRAY),
            (&contents, Type::TEXT_ARRAY),
            (&bodies, Type::BYTEA_ARRAY),
            (&limits, Type::INT4_ARRAY),
            (&waits, Type::INT8_ARRAY),
            (&starts, Type::TIMESTAMPTZ_ARRAY),
            (&orders, Type::TEXT_ARRAY),
            (&sources, Type::TEXT_ARRAY),
        ];
        let failed = |error| self.error("creating deliveries", "writer", &error);
        if !notifies {
            return client.execute_typed(sql, &parameters).await.map_err(failed);
        }
        let made = client.query_typed(sql, &parameters).await.map_err(failed)?;
        let count = made.first().map_or(0, |row| row.get::<_, i64>(0));
        Ok(u64::try_from(count).unwrap_or_default())
    }

    /// Disables a destination: what is for it is held, until it is enabled.
    ///
    /// # Errors
    /// When the database refuses it.
    pub async fn disable(
        &self,
        client: &impl GenericClient,
        destination: &str,
        reason: &str,
    ) -> Result<(), StoreError> {
        let parameters: [(&(dyn ToSql + Sync), Type); 2] =
            [(&destination, Type::TEXT), (&reason, Type::TEXT)];
        let disabled = client.execute_typed(&self.sql.disable, &parameters).await;
        disabled.map(drop).map_err(|error| self.error("disabling it", "operator", &error))
    }

    /// Enables a destination. What is held for it is let go by
    /// [`release`](Self::release).
    ///
    /// # Errors
    /// When the database refuses it.
    pub async fn enable(
        &self,
        client: &impl GenericClient,
        destination: &str,
    ) -> Result<(), StoreError> {
        let enabled = client.execute_typed(&self.sql.enable, &[(&destination, Type::TEXT)]).await;
        enabled.map(drop).map_err(|error| self.error("enabling it", "operator", &error))
    }

    /// Lets up to `limit` held deliveries of an enabled destination go, oldest
    /// first; returns how many.
    ///
    /// # Errors
    /// When the database refuses it.
    pub async fn release(
        &self,
        client: &impl GenericClient,
        destination: &str,
        limit: u32,
    ) -> Result<u64, StoreError> {
        let limit = i64::from(limit);
        let released = client.execute_typed(&self.sql.release, &up_to(&destination, &limit)).await;
        released.map_err(|error| self.error("releasing deliveries", "operator", &error))
    }

    /// `kind` of role may do what was attempted.
    pub(crate) fn error(
        &self,
        attempted: &'static str,
        kind: &'static str,
        error: &tokio_postgres::Error,
    ) -> StoreError {
        StoreError::from_driver(attempted, (&self.sql.schema, kind), error)
    }
}

/// The parameters of what is done to so many deliveries of a destination.
fn up_to<'a>(destination: &'a &str, limit: &'a i64) -> [(&'a (dyn ToSql + Sync), Type); 2] {
    [(destination, Type::TEXT), (limit, Type::INT8)]
}

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
