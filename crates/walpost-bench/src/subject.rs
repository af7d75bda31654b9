//! What is measured, behind one trait.

mod connector;
mod debezium;
mod recvlogical;
mod walpost;

use std::path::{Path, PathBuf};

use anyhow::Result;
use tokio_postgres::types::PgLsn;
use walpost_local::ChildGuard;

pub(crate) use self::{
    debezium::{Debezium, JVM_ARGS},
    recvlogical::RecvLogical,
    walpost::Walpost,
};
use crate::{encoding::Encoding, services::Services};

/// The publication of every subject, as `walpost migrate` makes it.
const PUBLICATION: &str = "walpost";

/// A program that reads an outbox from a replication slot.
pub(crate) trait Subject {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// What exactly it is.
    fn version(&self, services: &Services) -> Result<String>;

    /// Where its events can be seen.
    fn output(&self) -> Output;

    /// Starts it. It is ended by dropping what is returned.
    fn start(&self, job: &Job<'_>) -> Result<ChildGuard>;
}

/// Where the events of a subject can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// In the topic of the job.
    Topic,
    /// In the file of the job.
    File,
}

/// What a subject is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job<'a> {
    pub(crate) services: &'a Services,
    /// For its own files; empty.
    pub(crate) folder: &'a Path,
    /// Exists, with all events behind it.
    pub(crate) slot: &'a str,
    /// Exists.
    pub(crate) topic: &'a str,
    pub(crate) encoding: Encoding,
    /// Exists; for a subject without Kafka.
    pub(crate) file: &'a Path,
    /// Where a subject that can end by itself is to end.
    pub(crate) end: Option<PgLsn>,
}

impl Job<'_> {
    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }
}
