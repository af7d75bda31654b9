//! Tests of handlers of [`walpost_consumer`]: given events, copies, crashes and
//! take-overs, without Kafka.
//!
//! A [`HandlerTest`] has a [`Handler`] and a database of its own on a PostgreSQL.
//! What it delivers goes through the real consumer, on a log in memory: each
//! event in the transaction with its offset and its deduplication row, parked
//! when it fails, refused by the fence when another owner has taken over.
//!
//! ```
//! use walpost_consumer::{Event, Handler, HandlerError, tokio_postgres::Transaction};
//! use walpost_consumer_test::{HandlerTest, Step, TestDatabase};
//!
//! struct Shipping;
//!
//! impl Handler for Shipping {
//!     async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
//!         let order: i64 = event.json()?;
//!         tx.execute("insert into shipment (order_id) values ($1)", &[&order]).await?;
//!         Ok(())
//!     }
//! }
//!
//! # async fn test() -> Result<(), walpost_consumer_test::Error> {
//! let database = TestDatabase::embedded().await?; // or create("postgres://…")
//! database.sql("create table shipment (order_id bigint not null)").await?;
//! let test = HandlerTest::new(database, |_| Shipping).await?;
//!
//! let order = |id: &str| {
//!     let event = Event::builder("outbox.event.order").header("id", Some(id.as_bytes()));
//!     event.value(Some(id.as_bytes())).build()
//! };
//! test.deliver(&[order("1"), order("2")]).await?.assert_applied(2);
//! test.deliver(&[order("1")]).await?.assert_duplicates(1);
//! test.crash_at(Step::BeforeCommit).deliver(&[order("3")]).await?.assert_applied(1);
//! assert_eq!(test.number("select count(*) from shipment").await?, 3);
//!
//! // Whatever way they come, the effects are the same.
//! test.every_way(&[order("1"), order("2")]).await?.assert_same();
//! // But that is the guard's merit: a second run would ship twice.
//! let repetition = test.without_guard().twice(&[order("1")]).await?;
//! assert!(!repetition.is_idempotent());
//! println!("{repetition}");
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
//! #     .block_on(test()).unwrap();
//! ```
//!
//! # The database
//!
//! A handler gets a transaction of PostgreSQL, so there is no test of it without
//! a server, and nothing here pretends to be one. [`TestDatabase::create`] makes
//! a database on a server of yours, whose role needs CREATEDB.
//! `TestDatabase::embedded` (feature `embedded`) starts a server of its own
//! for the process, without `fsync`, in the folder for temporary files: with
//! `TMPDIR` on a RAM disk it is one in memory. What a handler decides before it
//! writes is best a function that a test calls without any of this.
//!
//! A test has its database, and each comparison runs on copies of it as it was
//! given to [`HandlerTest::new`]; all are dropped with their values. No other
//! database of the server is touched.
//!
//! # What is the real thing, and what is not
//!
//! The consumer is the one that you run: the same tasks, the same SQL, the same
//! lanes, guards and decisions, with the settings that you give to
//! [`HandlerTest::consumer`]. In the place of librdkafka stands a log in memory;
//! fetching, rebalances and brokers' faults are not tested here. A crash ends the
//! transaction's connection at the server, drops the consumer where it stands,
//! and starts another with another handler. Effects outside of the database
//! (mails, calls) are not seen; what the handler does outside of its transaction
//! in the database is, as a difference.
//!
//! # Comparing
//!
//! Runs are compared by the rows of your tables, at most
//! [`max_rows`](HandlerTest::max_rows). Columns drawn from a sequence differ
//! after any rollback, so they are left out with the foreign keys that refer to
//! them; so is what differs between two undisturbed runs, such as `now()` or a
//! random id. Leave out by [`leave_out`](HandlerTest::leave_out) what keeps
//! offsets. [`Ways::left_out`] lists all of it.
//!
//! # Handlers of sqlx
//!
//! They are handlers: bring the pool where the handler is made.
//!
//! ```no_run
//! # use walpost_consumer::Event;
//! use walpost_consumer_sqlx::{
//!     Failed, Sqlx, SqlxHandler,
//!     sqlx::{self, PgTransaction, postgres::PgPoolOptions},
//! };
//! use walpost_consumer_test::{HandlerTest, TestDatabase};
//! # struct Shipping;
//! # impl SqlxHandler for Shipping {
//! #     async fn handle(&self, tx: &mut PgTransaction<'_>, event: &Event) -> Result<(), Failed> {
//! #         Ok(())
//! #     }
//! # }
//!
//! # async fn test(database: TestDatabase) -> Result<(), walpost_consumer_test::Error> {
//! let test = HandlerTest::new(database, |url| {
//!     let pool = PgPoolOptions::new().max_connections(4).connect_lazy(url);
//!     Sqlx::new(pool.expect("a URL"), Shipping)
//! })
//! .await?;
//! # Ok(())
//! # }
//! ```

mod database;
mod difference;
#[cfg(feature = "embedded")]
mod embedded;
mod error;
mod kit;
mod probe;
mod repetition;
mod report;
mod stand;
mod step;
mod tables;
mod ways;
mod world;

#[cfg(doc)]
use walpost_consumer::Handler;

pub use crate::{
    database::TestDatabase,
    difference::{Change, RowChange, TableChange},
    error::Error,
    kit::{HandlerTest, Interrupted, Unguarded},
    repetition::Repetition,
    report::{Call, Ending, Failure, FailureKind, Parked, Report},
    step::Step,
    ways::{Way, WayRun, Ways},
};
