//! Private PostgreSQL, Kafka, Redis and schema registry processes on this
//! machine, without containers.
//!
//! Blocking, Unix only. Everything listens on 127.0.0.1, keeps its files in a
//! temporary folder of its own, and ends with the process that started it,
//! even when that one is killed (see [`ChildGuard`]).
//!
//! ```no_run
//! use walpost_local::{Kafka, Postgres};
//!
//! let postgres = Postgres::builder().throwaway().start()?;
//! let kafka = Kafka::builder().start()?;
//! println!("{} {}", postgres.url("postgres"), kafka.bootstrap());
//! # Ok::<(), walpost_local::LocalError>(())
//! ```
//!
//! PostgreSQL comes from this machine when a suitable one is installed; see
//! [`PostgresBuilder::version`]. Whatever is not installed is fetched by Maven
//! once, checked against the SHA-256 sums in `checksums/`, and kept in
//! [`cache_dir`].

mod account;
mod cache;
mod checksum;
mod command;
mod error;
mod fetch;
mod guard;
mod java;
mod kafka;
mod port;
mod postgres;
mod redis;
mod registry;
mod run;
mod service;
mod signal;
mod workdir;

pub use crate::{
    cache::cache_dir,
    error::LocalError,
    fetch::{
        APICURIO_CONVERTER_VERSION, DEBEZIUM_JDBC_VERSION, DEBEZIUM_VERSION, REGISTRY_VERSION,
        fetch_apicurio_converter, fetch_debezium, fetch_debezium_jdbc, fetch_kafka, fetch_postgres,
        fetch_registry, newest_postgres,
    },
    guard::{ChildGuard, Launch, Lifetime},
    java::find_java,
    kafka::{KAFKA_VERSION, Kafka, KafkaBuilder, KafkaTools},
    port::free_port,
    postgres::{Auth, Postgres, PostgresBuilder},
    redis::Redis,
    registry::Registry,
    run::Run,
    signal::{Signal, is_alive, send_signal},
};
