use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio_postgres::{Client, Row, Transaction, types::Type};

use super::{Deliveries, StoreError, millis};
use crate::{Message, Schedule};

/// A delivery that is ours until its lease ends.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) lapsed: Lapsed,
    pub(crate) message: Message,
    /// No later than the server's end of the lease.
    pub(crate) deadline: Instant,
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
    /// is made.
    pub(crate) async fn claim(
        &self,
        client: &Client,
        destination: &str,
        limit: u32,
        (lease, name): (Duration, &str),
    ) -> Result<Vec<Claim>, StoreError> {
        let deadline = Instant::now() + lease;
        let (limit, lease_ms) = (i64::from(limit), millis(lease));
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 4] = [
            (&destination, Type::TEXT),
            (&limit, Type::INT8),
            (&lease_ms, Type::INT8),
            (&name, Type::TEXT),
        ];
        let rows = client
            .query_typed(&self.sql.claim, &parameters)
            .await
            .map_err(|error| self.error("claiming deliveries", "sender", &error))?;
        Ok(rows.iter().map(|row| Claim::read(row, deadline)).collect())
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
