use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::join;
use tokio_postgres::{
    Client, Error as PgError, Row, Transaction,
    types::{ToSql, Type},
};

use super::{Deliveries, StoreError, millis};
use crate::{Message, OnHeadFailure, Order, Schedule};

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
    /// How many of them may be retries.
    pub(crate) retries: u32,
    /// Of their bodies together.
    pub(crate) bytes: usize,
    /// Whether nothing else is on its way: then the first is claimed whatever its
    /// size.
    pub(crate) is_empty: bool,
}

/// In which order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) order: Order,
    pub(crate) on_head_failure: OnHeadFailure,
    /// How many beyond those that there is room for are looked at, as many of them may
    /// be behind others.
    pub(crate) beyond: u32,
}

impl Line {
    fn passes_failed(self) -> bool {
        self.on_head_failure == OnHeadFailure::Skip
    }
}

/// What a look for deliveries has found.
#[derive(Debug, Default)]
pub(crate) struct Claimed {
    pub(crate) claims: Vec<Claim>,
    /// Whether there are more for which there was no room.
    pub(crate) is_full: bool,
    /// Nothing is claimed for a destination that is disabled.
    pub(crate) is_disabled: bool,
    /// How many were found to be behind others, and are not due any more.
    pub(crate) blocked: u64,
    /// Whether all that were looked at were due, and there may be more behind them.
    pub(crate) is_cut: bool,
    /// Whether there may be more retries.
    pub(crate) has_retries: bool,
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
    /// Makes a destination known, and how its deliveries go.
    pub(crate) async fn register(
        &self,
        client: &Client,
        destination: &str,
        line: Line,
    ) -> Result<(), StoreError> {
        let (order, passes_failed) = (line.order.as_str(), line.passes_failed());
        let parameters: [(&(dyn ToSql + Sync), Type); 3] =
            [(&destination, Type::TEXT), (&order, Type::TEXT), (&passes_failed, Type::BOOL)];
        let known = client.execute_typed(&self.sql.register, &parameters).await;
        known.map(drop).map_err(|error| self.error("registering it", "sender", &error))
    }

    /// Makes up to `limit` deliveries due that were found behind others by another
    /// order, or that nobody has let go; how many.
    pub(crate) async fn let_go(
        &self,
        client: &Client,
        destination: &str,
        (line, limit): (Line, u32),
    ) -> Result<u64, StoreError> {
        let (limit, passes_failed) = (i64::from(limit), line.passes_failed());
        let parameters: [(&(dyn ToSql + Sync), Type); 3] =
            [(&destination, Type::TEXT), (&limit, Type::INT8), (&passes_failed, Type::BOOL)];
        let sql = &self.sql.order;
        let let_go = match line.order {
            Order::Key => client.execute_typed(&sql.let_passed_go, &parameters).await,
            Order::None | Order::All => {
                client.execute_typed(&sql.let_all_go, &parameters[..2]).await
            }
        };
        let_go.map_err(|error| self.error("letting deliveries go", "sender", &error))
    }

    /// Has up to `limit` deliveries go with all others in order that were created before
    /// the destination said so; how many.
    pub(crate) async fn adopt(
        &self,
        client: &Client,
        destination: &str,
        limit: u32,
    ) -> Result<u64, StoreError> {
        let limit = i64::from(limit);
        let parameters: [(&(dyn ToSql + Sync), Type); 2] =
            [(&destination, Type::TEXT), (&limit, Type::INT8)];
        let adopted = client.execute_typed(&self.sql.order.adopt, &parameters).await;
        adopted.map_err(|error| self.error("ordering deliveries", "sender", &error))
    }

    /// Claims what is due and its turn, in one statement, which counts each attempt
    /// before it is made. What the destination's row says is from right before it.
    pub(crate) async fn claim(
        &self,
        client: &Client,
        destination: &str,
        (room, line): (Room, Line),
        (lease, name): (Duration, &str),
    ) -> Result<Claimed, StoreError> {
        let deadline = Instant::now() + lease;
        let (limit, lease_ms) = (i64::from(room.deliveries), millis(lease));
        let bytes = i64::try_from(room.bytes).unwrap_or(i64::MAX);
        let (look, passes_failed) = (limit + i64::from(line.beyond), line.passes_failed());
        let retries = i64::from(room.retries);
        let by_key: [(&(dyn ToSql + Sync), Type); 9] = [
            (&destination, Type::TEXT),
            (&limit, Type::INT8),
            (&lease_ms, Type::INT8),
            (&name, Type::TEXT),
            (&bytes, Type::INT8),
            (&room.is_empty, Type::BOOL),
            (&retries, Type::INT8),
            (&look, Type::INT8),
            (&passes_failed, Type::BOOL),
        ];
        let all: [(&(dyn ToSql + Sync), Type); 4] = [
            (&destination, Type::TEXT),
            (&lease_ms, Type::INT8),
            (&name, Type::TEXT),
            (&passes_failed, Type::BOOL),
        ];
        let order = &self.sql.order;
        let (is_disabled, rows) = match line.order {
            // One round trip for both.
            Order::None => join!(
                self.is_disabled(client, destination),
                client.query_typed(&self.sql.claim, &by_key[..7]),
            ),
            Order::Key => {
                self.claim_in_turn(client, destination, (&order.claim_by_key, &by_key)).await
            }
            Order::All => self.claim_in_turn(client, destination, (&order.claim_all, &all)).await,
        };
        let rows = rows.map_err(|error| self.error("claiming deliveries", "sender", &error))?;
        let is_one = |row: &&Row| row.get::<_, Option<i64>>(0).is_some();
        let claims: Vec<Claim> =
            rows.iter().filter(is_one).map(|row| Claim::read(row, deadline)).collect();
        let first = rows.first();
        let by_key = first.filter(|_| line.order == Order::Key);
        let was_cut = line.order != Order::All && first.is_some_and(|row| row.get(9));
        let blocked = by_key.map_or(0, |row| row.get::<_, i64>(12));
        let has_retries = line.order != Order::All && first.is_some_and(|row| row.get(10));
        Ok(Claimed {
            is_full: was_cut || claims.len() >= room.deliveries as usize,
            claims,
            is_disabled: is_disabled?,
            blocked: u64::try_from(blocked).unwrap_or_default(),
            is_cut: by_key.is_some_and(|row| row.get(11)),
            // With no room for any nothing is known.
            has_retries: has_retries || room.retries == 0,
        })
    }

    /// Claims one after the other of a destination, whoever makes them: each sees what
    /// those before it have claimed. In one round trip, whose transaction ends in it.
    async fn claim_in_turn(
        &self,
        client: &Client,
        destination: &str,
        (sql, parameters): (&str, &[(&(dyn ToSql + Sync), Type)]),
    ) -> (Result<bool, StoreError>, Result<Vec<Row>, PgError>) {
        let lock = [(&destination as &(dyn ToSql + Sync), Type::TEXT)];
        // Sent in this order; behind a failure the end is a roll-back.
        let (begun, locked, is_disabled, rows, ended) = join!(
            biased;
            client.batch_execute("begin isolation level read committed"),
            client.query_typed(&self.sql.order.lock, &lock),
            self.is_disabled(client, destination),
            client.query_typed(sql, parameters),
            client.batch_execute("commit"),
        );
        let rows = begun.and(locked).and(rows).and_then(|rows| ended.map(|()| rows));
        (is_disabled, rows)
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
