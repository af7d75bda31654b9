//! Handlers with one fault each, and events for them.

use std::{
    collections::HashSet,
    sync::{Mutex, OnceLock, PoisonError},
};

use walpost_consumer::{
    Event, Handler, HandlerError, SliceError,
    tokio_postgres::{Client, NoTls, Transaction},
};
use walpost_consumer_test::{HandlerTest, TestDatabase};

pub(crate) const TABLES: &str = "\
    create table shipment (id bigint generated always as identity primary key, \
        order_id text not null, at timestamptz not null default clock_timestamp()); \
    create table line (shipment_id bigint not null references shipment, item text not null); \
    create table total (name text primary key, orders bigint not null); \
    create table customer (id text primary key, orders bigint not null, last text); \
    insert into total values ('all', 0)";

/// Events with these ids, two of which are of one key, in partitions 0 and 1.
pub(crate) fn events(ids: &[&str]) -> Vec<Event> {
    ids.iter().enumerate().map(|(number, id)| event(id, (number % 2) as i32)).collect()
}

pub(crate) fn event(id: &str, partition: i32) -> Event {
    Event::builder("outbox.event.order")
        .position(partition, 0)
        .key(Some(id.as_bytes()))
        .header("id", Some(id.as_bytes()))
        .value(Some(id.as_bytes()))
        .build()
}

pub(crate) async fn test<H: Handler>(
    handler: impl Fn(&str) -> H + Send + Sync + 'static,
) -> HandlerTest<H> {
    HandlerTest::new(database().await, handler).await.unwrap()
}

pub(crate) async fn database() -> TestDatabase {
    let database = TestDatabase::create(walpost_testkit::postgres().url()).await.unwrap();
    database.sql(TABLES).await.unwrap();
    database
}

/// Right, and not idempotent: a row with a key of its own, and another that
/// refers to it.
pub(crate) struct Shipping;

impl Handler for Shipping {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        let insert = "insert into shipment (order_id) values ($1) returning id";
        let id: i64 = tx.query_one(insert, &[&event.id()]).await?.get(0);
        tx.execute("insert into line values ($1, 'a book')", &[&id]).await?;
        Ok(())
    }
}

/// Right, and not idempotent.
pub(crate) struct Counting;

impl Handler for Counting {
    async fn handle(&self, tx: &Transaction<'_>, _: &Event) -> Result<(), HandlerError> {
        tx.execute("update total set orders = orders + 1", &[]).await?;
        Ok(())
    }
}

/// Right and idempotent, with one statement for a slice.
pub(crate) struct Upserting;

impl Handler for Upserting {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        self.handle_slice(tx, std::slice::from_ref(event)).await.map_err(SliceError::into_inner)
    }

    async fn handle_slice(&self, tx: &Transaction<'_>, events: &[Event]) -> Result<(), SliceError> {
        let ids: Vec<&str> = events.iter().map(Event::id).collect();
        let upsert = "insert into customer select id, 1, id from unnest($1::text[]) u(id) \
                      on conflict (id) do update set last = excluded.last";
        tx.execute(upsert, &[&ids]).await?;
        Ok(())
    }
}

/// What a function says.
pub(crate) struct Ask<F>(pub(crate) F);

impl<F> Handler for Ask<F>
where
    F: Fn(&Event) -> Result<(), HandlerError> + Send + Sync + 'static,
{
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        Shipping.handle(tx, event).await?;
        (self.0)(event)
    }
}

/// Wrong: ends the transaction by itself.
pub(crate) struct Committing;

impl Handler for Committing {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        Shipping.handle(tx, event).await?;
        tx.batch_execute("commit").await?;
        Ok(())
    }
}

/// Wrong: counts on a connection of its own.
pub(crate) struct Outside {
    pub(crate) url: String,
}

impl Handler for Outside {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        Shipping.handle(tx, event).await?;
        let client = connect(&self.url).await?;
        client.execute("update total set orders = orders + 1", &[]).await?;
        Ok(())
    }
}

async fn connect(url: &str) -> Result<Client, HandlerError> {
    let (client, connection) = walpost_consumer::tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Wrong: remembers what it has handled, whether that was committed or not.
#[derive(Default)]
pub(crate) struct Remembering {
    seen: Mutex<HashSet<String>>,
}

impl Handler for Remembering {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        let is_new = {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.insert(event.id().to_owned())
        };
        if is_new { Shipping.handle(tx, event).await } else { Ok(()) }
    }
}

/// Wrong: its effect depends on the order of the process's life.
pub(crate) struct Numbering;

impl Handler for Numbering {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        static CALLS: OnceLock<Mutex<i64>> = OnceLock::new();
        let number = {
            let calls = CALLS.get_or_init(Mutex::default);
            let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
            *calls += 1;
            *calls
        };
        for row in 0..number {
            let key = format!("{} {row}", event.id());
            tx.execute("insert into customer values ($1, 1)", &[&key]).await?;
        }
        Ok(())
    }
}
