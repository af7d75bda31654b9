//! What the tests of Walpost share. Everything here panics with what it tried
//! when it cannot do its work: a test never goes on without its services.
//!
//! ```no_run
//! use std::time::Duration;
//! use walpost_testkit::{fresh_database, fresh_topic, kafka, read_all, until};
//!
//! # async fn test() {
//! let database = fresh_database().await;
//! let client = database.connect().await;
//! client.batch_execute("create table outbox (id uuid)").await.unwrap();
//!
//! let topic = fresh_topic("orders", 3).await;
//! until(Duration::from_secs(30), "one record on the topic", async || {
//!     read_all(kafka().bootstrap(), &topic).await.len() == 1
//! })
//! .await;
//! # }
//! ```
//!
//! - [`postgres`], [`postgres_of`], [`kafka`]: one of each for all tests of a run
//!   ([`walpost_local::Run`]), started on first use, gone with the run. Tests that
//!   stop or freeze a service start their own with [`walpost_local`].
//! - [`Database::dump`], [`Dump::restore`]: by the programs of the server's version.
//! - [`Pooler`]: each transaction on another connection, as behind PgBouncer.
//! - [`Proxy`]: faults between a client and a service.
//! - [`Process`]: a program under test, with its log; [`built_program`]: where the
//!   build of the tests has put it.
//! - [`covers_points`]: that a table of kills has each failpoint of the code.
//! - [`npm_packages`], [`python_packages`]: published packages to test against.
//! - [`SESSION`]: what a handler may leave in its session.
//! - [`judge`]: the oracle over what was committed, published and applied.
//! - `Authority`, with the feature `certificates`: certificates, and their keys in
//!   every form; and `SecureKafka`, a broker that asks for them and for logins.
//! - `Running`, with the feature `consumer`: a consumer as a task, and what tests
//!   wait for.
//! - [`Quoting`]: errors of the server that quote a value, which no text may show.
//! - [`property`]: a test over many seeds within a time budget.

mod built;
#[cfg(feature = "certificates")]
mod certificates;
#[cfg(feature = "consumer")]
mod consumer;
mod dump;
mod kafka;
mod leftovers;
mod oracle;
mod packages;
mod points;
mod pooler;
mod process;
mod property;
mod proxy;
mod quoting;
#[cfg(feature = "certificates")]
mod secure_kafka;
mod services;
mod session;
mod wait;

#[cfg(feature = "consumer")]
pub use crate::consumer::{Running, each, ids, run, within};
pub use crate::{
    built::{built_program, release_program},
    dump::Dump,
    kafka::{
        Isolation, ReadRecord, create_replicated_topic, create_topic, end_offsets, fresh_topic,
        read_all, read_all_with, read_decided,
    },
    oracle::{Applied, Committed, Published, Report, judge},
    packages::{npm_packages, python_packages},
    points::covers_points,
    pooler::Pooler,
    process::Process,
    property::{Seeded, property},
    proxy::{Direction, Proxy, Target},
    quoting::{MARKER, QUOTING_SCHEMA, Quoting},
    services::{
        Database, SharedKafka, SharedPostgres, fresh_database, kafka, postgres, postgres_of,
        unique_name,
    },
    session::SESSION,
    wait::{until, until_some},
};
#[cfg(feature = "certificates")]
pub use crate::{
    certificates::{Algorithm, Authority, Identity, KeyForm},
    secure_kafka::SecureKafka,
};
pub use walpost_local::{self as local, Signal};
