use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::join;
use tokio_postgres::{Client, Row, Transaction, types::Type};

use super::{Deliveries, StoreError, millis};
use crate::{Message, Schedule};

/// A delivery that is ours until its lease ends.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) lapsed: Lapsed,
    pub(crate) message: Message,
    /// The end of the lease by the clock of this process, which began to count
    /// before the server did: no later than the server's.
    pub(crate) deadline: Instant,
}

/// How much to claim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) deliveries: u32,
    /// Of their bodies together.
    pub(crate) bytes: usize,
    /// Whether nothing else is on its way: then the first is claimed whatever its
    /// size.
    pub(crate) is_empty: bool,
}

/// What a look for deliveries has found.
#[derive(Debug, Default)]
pub(crate) struct Claimed {
    pub(crate) claims: Vec<Claim>,
    /// Whether there are more for which there was no room.
    pub(crate) is_full: bool,
    /// Nothing is claimed for a destination that is disabled.
    pub(crate) is_disabled: bool,
}

/// What a claim's end needs, also where its owner is gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lapsed {
    pub(crate) id: i64,
    pub(crate) fence: i64,
    /// Number of the attempt, from 1.
    pub(crate) attempt: u32,
    retry_limit: Option<u32>,
    retry_wait: Option<Duration>,
}

impl Lapsed {
    fn read(row: &Row) -> Self {
        let number = |column: usize| {
            let number: Option<i32> = row.get(column);
            number.map(|number| u32::try_from(number).unwrap_or_default())
        };
        let wait: Option<i64> = row.get(4);
        Self {
            id: row.get(0),
            fence: row.get(1),
            attempt: number(2).unwrap_or_default(),
            retry_limit: number(3),
            retry_wait: wait
                .map(|wait_ms| Duration::from_millis(u64::try_from(wait_ms).unwrap_or_default())),
        }
    }

    /// Which claim of which delivery: its id and its fence.
    pub(crate) fn claim(&self) -> (i64, i64) {
        (self.id, self.fence)
    }

    /// The schedule that counts for it.
    pub(crate) fn schedule(&self, of_destination: &Schedule) -> Schedule {
        of_destination.overridden(self.retry_limit, self.retry_wait)
    }
}

impl Claim {
    fn read(row: &Row, deadline: Instant) -> Self {
        let body: Vec<u8> = row.get(8);
        let message = Message {
            key: row.get(5),
            path: row.get(6),
            content_type: row.get(7),
            body: Bytes::from(body),
        };
        Self { lapsed: Lapsed::read(row), message, deadline }
    }
}

impl Deliveries {
    /// Makes a destination known.
    pub(crate) async fn register(
        &self,
        client: &Client,
        destination: &str,
    ) -> Result<(), StoreError> {
        let known = client.execute_typed(&self.sql.register, &[(&destination, Type::TEXT)]).await;
        known.map(drop).map_err(|error| self.error("registering it", "sender", &error))
    }

    /// Claims what is due, in one statement, which counts each attempt before it
    /// is made. What the destination's row says is from right before it.
    pub(crate) async fn claim(
        &self,
        client: &Client,
        destination: &str,
        room: Room,
        (lease, name): (Duration, &str),
    ) -> Result<Claimed, StoreError> {
        let deadline = Instant::now() + lease;
        let (limit, lease_ms) = (i64::from(room.deliveries), millis(lease));
        let bytes = i64::try_from(room.bytes).unwrap_or(i64::MAX);
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 6] = [
            (&destination, Type::TEXT),
            (&limit, Type::INT8),
            (&lease_ms, Type::INT8),
            (&name, Type::TEXT),
            (&bytes, Type::INT8),
            (&room.is_empty, Type::BOOL),
        ];
        // One round trip for both.
        let (is_disabled, rows) = join!(
            self.is_disabled(client, destination),
            client.query_typed(&self.sql.claim, &parameters),
        );
        let rows = rows.map_err(|error| self.error("claiming deliveries", "sender", &error))?;
        let claims: Vec<Claim> = rows.iter().map(|row| Claim::read(row, deadline)).collect();
        let was_cut = rows.first().is_some_and(|row| row.get(9));
        let is_full = was_cut || claims.len() >= room.deliveries as usize;
        Ok(Claimed { claims, is_full, is_disabled: is_disabled? })
    }

    /// Whether a destination is disabled.
    pub(crate) async fn is_disabled(
        &self,
        client: &Client,
        destination: &str,
    ) -> Result<bool, StoreError> {
        let found = client.query_typed(&self.sql.is_disabled, &[(&destination, Type::TEXT)]).await;
        let found = found.map_err(|error| self.error("looking at it", "sender", &error))?;
        Ok(!found.is_empty())
    }

    /// Claims whose leases have ended, locked.
    pub(crate) async fn lapsed(
        &self,
        tx: &Transaction<'_>,
        destination: &str,
        limit: u32,
    ) -> Result<Vec<Lapsed>, StoreError> {
        let limit = i64::from(limit);
        let rows = tx
            .query_typed(&self.sql.lapsed, &[(&destination, Type::TEXT), (&limit, Type::INT8)])
            .await
            .map_err(|error| self.error("looking for lapsed claims", "sender", &error))?;
        Ok(rows.iter().map(Lapsed::read).collect())
    }

    /// Holds up to `limit` deliveries of a disabled destination; how many.
    pub(crate) async fn hold(
        &self,
        client: &Client,
        destination: &str,
        limit: u32,
    ) -> Result<u64, StoreError> {
        let limit = i64::from(limit);
        client
            .execute_typed(&self.sql.hold, &[(&destination, Type::TEXT), (&limit, Type::INT8)])
            .await
            .map_err(|error| self.error("holding deliveries", "sender", &error))
    }
}
