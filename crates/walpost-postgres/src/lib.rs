//! How Walpost connects to PostgreSQL.
//!
//! [`Database`] holds one libpq connection string, with the TLS settings that
//! `tokio_postgres` leaves to others, and opens two kinds of connection from
//! it: a SQL session ([`Database::connect`]) and a bare [`Stream`]
//! ([`Database::open`]) on which the relay speaks the replication protocol. A session that
//! hears of notifications is [`Database::listen`].
//!
//! ```
//! use walpost_postgres::Database;
//!
//! let database = Database::parse("postgres://app@db.internal/shop?sslmode=verify-full")?;
//! assert_eq!(database.to_string(), "app@db.internal:5432/shop");
//! # Ok::<(), walpost_postgres::SettingsError>(())
//! ```

mod advice;
mod connect;
mod key;
mod listen;
mod settings;
mod stream;
mod tls;
mod verify;

pub use tokio_postgres;

pub use crate::{
    connect::ConnectError,
    listen::Listener,
    settings::{Database, SettingsError},
    stream::Stream,
    tls::{Password, SslMode, TlsError, TlsSettings},
};
