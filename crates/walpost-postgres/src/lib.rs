//! How Walpost connects to PostgreSQL, and what it shows of the server's errors.
//!
//! [`Database`] holds one libpq connection string, with the TLS settings that
//! `tokio_postgres` leaves to others, and opens two kinds of connection from
//! it: a SQL session ([`Database::connect`]) and a bare [`Stream`]
//! ([`Database::open`]) on which the relay speaks the replication protocol. A session that
//! hears of notifications is [`Database::listen`].
//!
//! ```
//! # #[cfg(feature = "connect")]
//! # {
//! use walpost_postgres::Database;
//!
//! let database = Database::parse("postgres://app@db.internal/shop?sslmode=verify-full")?;
//! assert_eq!(database.to_string(), "app@db.internal:5432/shop");
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`shown`] decides what of an error of PostgreSQL may be shown. It is all that there is
//! without the feature `connect`, which is on by default.

#[cfg(feature = "connect")]
mod advice;
mod conditions;
#[cfg(feature = "connect")]
mod connect;
#[cfg(feature = "connect")]
mod key;
#[cfg(feature = "connect")]
mod listen;
#[cfg(feature = "connect")]
mod settings;
pub mod shown;
#[cfg(feature = "connect")]
mod stream;
#[cfg(feature = "connect")]
mod tls;
#[cfg(feature = "connect")]
mod verify;

pub use tokio_postgres;

#[cfg(feature = "connect")]
pub use crate::{
    connect::ConnectError,
    listen::Listener,
    settings::{Database, SettingsError},
    stream::Stream,
    tls::{Password, SslMode, TlsError, TlsSettings},
};
