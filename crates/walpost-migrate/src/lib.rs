//! The tables of Walpost, created and brought up to date.
//!
//! The SQL lies in `migrations/`, one folder per [`Set`], and is built into
//! this crate. All of it goes into one schema, `walpost` unless told otherwise.
//! Forward only; each file is one transaction under an advisory lock of that
//! transaction, so any number of processes may migrate at once, also behind a
//! pooler that gives each transaction another session.
//!
//! ```no_run
//! use walpost_migrate::{Migrator, Set};
//!
//! # async fn example(client: &mut tokio_postgres::Client) -> Result<(), walpost_migrate::Error> {
//! for applied in Migrator::new().set(Set::Relay).migrate(client).await? {
//!     println!("applied {} {:04}_{}", applied.set, applied.number, applied.name);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Migrator::partitioned`] creates the outbox in partitions, of which whole days
//! leave at once.
//!
//! Those who have a migration tool print the SQL instead, with
//! [`Migrator::render`] or [`Migrator::scripts`]. It enters itself into the
//! table `migration`, so that [`Migrator::migrate`] and [`Migrator::status`]
//! later see it as applied.

mod checksum;
mod embedded;
mod error;
mod migrator;
mod names;
mod plan;
mod render;
mod sql;

pub use crate::{
    checksum::checksum,
    embedded::{Form, Migration, Set},
    error::{Error, NameError, PlanError},
    migrator::{Applied, Migrator, State, Status},
    plan::{Entry, plan},
    render::Script,
};
