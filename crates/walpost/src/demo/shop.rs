use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use serde::Serialize;
use tokio::{sync::Semaphore, task::JoinSet};
use tokio_postgres::{Client, Statement, Transaction};
use walpost_outbox::{NewEvent, OutboxTable, write_all};
use walpost_postgres::Database;

use crate::failure::Failure;

/// Aggregates. Few, so that there is an order to keep.
pub(super) const ORDERS: usize = 50;
const CUSTOMERS: usize = 10;
/// Connections that write at the same time. Each order belongs to one of them.
const WRITERS: usize = 4;
/// Events of the largest transaction.
const MAX_TRANSACTION_EVENTS: u64 = 25;

/// The shop's own tables: its state, and the effects of its events.
pub(super) const TABLES: &str = "
    create table shop_order (
        id text primary key,
        customer text not null,
        status text not null default 'new',
        sequence bigint not null default 0,
        total_cents bigint not null default 0
    );
    create table shipment (
        n bigint generated always as identity,
        event_id text not null,
        order_id text not null,
        sequence bigint not null,
        at timestamptz not null default clock_timestamp()
    );";

const STATUSES: [(&str, &str); 4] = [
    ("placed", "OrderPlaced"),
    ("paid", "OrderPaid"),
    ("packed", "OrderPacked"),
    ("changed", "OrderChanged"),
];

#[derive(Serialize)]
struct Payload<'a> {
    order: &'a str,
    customer: &'a str,
    sequence: i64,
    status: &'a str,
    total_cents: i64,
}

/// The shop at work.
#[derive(Debug)]
pub(super) struct Shop {
    writers: JoinSet<Result<(), anyhow::Error>>,
    written: Arc<AtomicU64>,
    allowed: Arc<Semaphore>,
    allowed_events: u64,
}

/// Name of an order: the aggregate, and the key of its records.
pub(super) fn order_id(order: usize) -> String {
    format!("order-{order:02}")
}

impl Shop {
    /// Fills the shop and starts to write `events` events, as far as it is
    /// [allowed](Self::allow).
    pub(super) async fn open(
        database: &Database,
        aggregate_type: &str,
        events: u64,
    ) -> Result<Self, Failure> {
        let client = database.connect().await.map_err(Failure::postgres)?;
        for order in 0..ORDERS {
            let customer = format!("customer-{}", order % CUSTOMERS);
            client
                .execute(
                    "insert into shop_order (id, customer) values ($1, $2)",
                    &[&order_id(order), &customer],
                )
                .await
                .map_err(Failure::postgres)?;
        }
        let written = Arc::new(AtomicU64::new(0));
        let allowed = Arc::new(Semaphore::new(0));
        let mut writers = JoinSet::new();
        for number in 0..WRITERS {
            let share = events / WRITERS as u64;
            let rest = if number == 0 { events % WRITERS as u64 } else { 0 };
            let writer = Writer {
                orders: (number..ORDERS).step_by(WRITERS).map(order_id).collect(),
                aggregate_type: aggregate_type.to_owned(),
                random: Random(number as u64 + 1),
                written: written.clone(),
                allowed: allowed.clone(),
            };
            writers.spawn(writer.run(database.clone(), share + rest));
        }
        Ok(Self { writers, written, allowed, allowed_events: 0 })
    }

    /// Lets it write up to so many events in all.
    pub(super) fn allow(&mut self, events: u64) {
        let more = events.saturating_sub(self.allowed_events);
        self.allowed_events += more;
        self.allowed.add_permits(usize::try_from(more).unwrap_or(Semaphore::MAX_PERMITS));
    }

    /// Events that are committed.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Whether every writer is done. Fails when one has.
    pub(super) fn is_done(&mut self) -> Result<bool, Failure> {
        while let Some(done) = self.writers.try_join_next() {
            done.map_err(Failure::running)?
                .map_err(|error| Failure::running(error).context("the shop failed"))?;
        }
        Ok(self.writers.is_empty())
    }
}

struct Writer {
    orders: Vec<String>,
    aggregate_type: String,
    random: Random,
    written: Arc<AtomicU64>,
    allowed: Arc<Semaphore>,
}

impl Writer {
    async fn run(mut self, database: Database, events: u64) -> Result<(), anyhow::Error> {
        let mut client = database.connect().await?;
        let change = client
            .prepare(
                "update shop_order set sequence = sequence + 1, status = $2,
                     total_cents = total_cents + $3
                 where id = $1 returning sequence, customer, total_cents",
            )
            .await?;
        let mut left = events;
        while left > 0 {
            let size = match self.random.below(4) {
                0 => 2 + self.random.below(MAX_TRANSACTION_EVENTS - 1),
                _ => 1,
            };
            // Some change their mind: what they wrote must reach nobody.
            let takes_back = self.random.below(20) == 0;
            let size = size.min(left);
            if !takes_back {
                self.allowed.acquire_many(u32::try_from(size)?).await?.forget();
            }
            self.transaction(&mut client, &change, size, takes_back).await?;
            if !takes_back {
                left -= size;
                self.written.fetch_add(size, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// State and events, both or neither.
    async fn transaction(
        &mut self,
        client: &mut Client,
        change: &Statement,
        size: u64,
        takes_back: bool,
    ) -> Result<(), anyhow::Error> {
        let tx = client.transaction().await?;
        let mut events = Vec::new();
        for _ in 0..size {
            events.push(self.change_an_order(&tx, change).await?);
        }
        write_all(&tx, &OutboxTable::default(), &events).await?;
        if takes_back {
            tx.rollback().await?;
        } else {
            tx.commit().await?;
        }
        Ok(())
    }

    async fn change_an_order(
        &mut self,
        tx: &Transaction<'_>,
        change: &Statement,
    ) -> Result<NewEvent, anyhow::Error> {
        let order = &self.orders[self.random.below(self.orders.len() as u64) as usize];
        let (status, event_type) = STATUSES[self.random.below(4) as usize];
        let cents = 100 + self.random.below(10_000) as i64;
        let row = tx.query_one(change, &[order, &status, &cents]).await?;
        let payload = Payload {
            order,
            sequence: row.get(0),
            customer: row.get(1),
            status,
            total_cents: row.get(2),
        };
        Ok(NewEvent::new(&self.aggregate_type, order, event_type).json(&payload)?)
    }
}

/// The same orders in every demo: splitmix64.
struct Random(u64);

impl Random {
    /// A number from 0, less than `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % limit
    }
}
