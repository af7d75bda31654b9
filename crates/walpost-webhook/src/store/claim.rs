use std::{
    collections::HashMap,
    convert,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::join;
use tokio_postgres::{
    Client, Error as PgError, Row, Transaction,
    types::{ToSql, Type},
};

use super::{Deliveries, StoreError, millis, order::at_once, up_to};
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
    pub(super) fn passes_failed(self) -> bool {
        self.on_head_failure == OnHeadFailure::Skip
    }
}

/// What is asked of a look for deliveries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) room: Room,
    pub(crate) line: Line,
    pub(crate) lease: Duration,
    /// Name of who claims.
    pub(crate) claimed_by: &'a str,
}

/// What a look for deliveries has found.
#[derive(Debug)]
pub(crate) struct Claimed {
    /// Without an order: with what is sent.
    pub(crate) claims: Vec<Claim>,
    /// By an order: without it.
    pub(crate) unread: Unread,
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

impl Claimed {
    /// How many are claimed.
    pub(crate) fn len(&self) -> usize {
        self.claims.len() + self.unread.lapsed.len()
    }
}

/// Claims that are committed, and what is sent is not read yet.
#[derive(Debug)]
pub(crate) struct Unread {
    pub(crate) lapsed: Vec<Lapsed>,
    /// As that of a [`Claim`].
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

/// How many one claim by key takes: its answer is written under the lock of claims, and goes
/// into what lies between the server and a process that does not read.
const IN_TURN_MAX: u32 = 500;

/// Columns of a claim: those of [`Lapsed`], then what was seen, in the first row of several.
const SEEN: usize = 5;
/// Behind them what is sent, where that is read with it.
const SENT: usize = SEEN + 4;

/// What is sent, of columns from this one on.
fn message(row: &Row, column: usize) -> Message {
    let body: Vec<u8> = row.get(column + 3);
    Message {
        key: row.get(column),
        path: row.get(column + 1),
        content_type: row.get(column + 2),
        body: Bytes::from(body),
    }
}

impl Claimed {
    fn read(rows: &[Row], (room, deadline): (Room, Instant)) -> Self {
        let first = rows.first();
        let said = |column| first.is_some_and(|row| row.get(SEEN + column));
        let is_one = |row: &&Row| row.get::<_, Option<i64>>(0).is_some();
        let (mut claims, mut lapsed) = (Vec::new(), Vec::new());
        for row in rows.iter().filter(is_one) {
            match row.len() > SENT {
                true => {
                    let message = message(row, SENT);
                    claims.push(Claim { lapsed: Lapsed::read(row), message, deadline });
                }
                false => lapsed.push(Lapsed::read(row)),
            }
        }
        let count = claims.len() + lapsed.len();
        let blocked = first.map_or(0, |row| row.get::<_, i64>(SEEN + 3));
        Self {
            claims,
            unread: Unread { lapsed, deadline },
            is_full: said(0) || count >= room.deliveries as usize,
            // With no room for any nothing is known.
            has_retries: said(1) || room.retries == 0,
            is_cut: said(2),
            blocked: u64::try_from(blocked).unwrap_or_default(),
            is_disabled: false,
        }
    }
}

impl Deliveries {
    /// Claims what is due and its turn, in one statement, which counts each attempt
    /// before it is made. What the destination's row says is from right before it.
    pub(crate) async fn claim(
        &self,
        client: &Client,
        destination: &str,
        ask: &Ask<'_>,
    ) -> Result<Claimed, StoreError> {
        let Ask { mut room, line, lease, claimed_by } = *ask;
        if line.order == Order::Key {
            room.deliveries = room.deliveries.min(IN_TURN_MAX);
        }
        let deadline = Instant::now() + lease;
        let (limit, lease_ms) = (i64::from(room.deliveries), millis(lease));
        let bytes = i64::try_from(room.bytes).unwrap_or(i64::MAX);
        let (look, passes_failed) = (limit + i64::from(line.beyond), line.passes_failed());
        let retries = i64::from(room.retries);
        let by_key: [(&(dyn ToSql + Sync), Type); 9] = [
            (&destination, Type::TEXT),
            (&limit, Type::INT8),
            (&lease_ms, Type::INT8),
            (&claimed_by, Type::TEXT),
            (&bytes, Type::INT8),
            (&room.is_empty, Type::BOOL),
            (&retries, Type::INT8),
            (&look, Type::INT8),
            (&passes_failed, Type::BOOL),
        ];
        let all: [(&(dyn ToSql + Sync), Type); 4] = [
            (&destination, Type::TEXT),
            (&lease_ms, Type::INT8),
            (&claimed_by, Type::TEXT),
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
        Ok(Claimed { is_disabled: is_disabled?, ..Claimed::read(&rows, (room, deadline)) })
    }

    /// Claims one after the other of a destination, whoever makes them.
    async fn claim_in_turn(
        &self,
        client: &Client,
        destination: &str,
        (sql, parameters): (&str, &[(&(dyn ToSql + Sync), Type)]),
    ) -> (Result<bool, StoreError>, Result<Vec<Row>, PgError>) {
        let mut is_disabled = Ok(false);
        let asked = async {
            let (disabled, rows) = join!(
                biased;
                self.is_disabled(client, destination),
                client.query_typed(sql, parameters),
            );
            is_disabled = disabled;
            rows
        };
        let asked = self.locked(client, destination, asked);
        let rows = at_once(client, asked, convert::identity).await;
        (is_disabled, rows)
    }

    /// What is sent of claims that are committed, without those that somebody else has by
    /// now. By a transaction that locks nothing, since it may be long until all is read.
    pub(crate) async fn read(
        &self,
        client: &Client,
        unread: &Unread,
    ) -> Result<Vec<Claim>, StoreError> {
        let Unread { ref lapsed, deadline } = *unread;
        let (ids, fences): (Vec<i64>, Vec<i64>) = lapsed.iter().map(Lapsed::claim).unzip();
        let parameters: [(&(dyn ToSql + Sync), Type); 2] =
            [(&ids, Type::INT8_ARRAY), (&fences, Type::INT8_ARRAY)];
        let contents = client.query_typed(&self.sql.order.contents, &parameters);
        let rows = at_once(client, contents, convert::identity).await;
        let rows = rows.map_err(|error| self.error("reading deliveries", "sender", &error))?;
        let mut messages: HashMap<i64, Message> =
            rows.iter().map(|row| (row.get(0), message(row, 1))).collect();
        let with = |lapsed: &Lapsed| {
            let message = messages.remove(&lapsed.id)?;
            Some(Claim { lapsed: *lapsed, message, deadline })
        };
        Ok(lapsed.iter().filter_map(with).collect())
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
            .query_typed(&self.sql.lapsed, &up_to(&destination, &limit))
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
            .execute_typed(&self.sql.hold, &up_to(&destination, &limit))
            .await
            .map_err(|error| self.error("holding deliveries", "sender", &error))
    }
}
