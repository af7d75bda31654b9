//! The PostgreSQL and the Kafka that all subjects share.

use std::{
    path::{Path, PathBuf},
    process, thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use walpost_local::{Kafka, Postgres, Registry};
use walpost_migrate::{Migrator, Set};

use crate::{database::Database, measure::Load, progress};

/// The database of every measurement.
pub(crate) const DATABASE: &str = "postgres";

const SLOT_LIMIT: Duration = Duration::from_secs(60);
const SLOT_POLL: Duration = Duration::from_millis(20);

/// The servers, and a folder for files. All of it goes with this value.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) postgres: Postgres,
    pub(crate) kafka: Kafka,
    pub(crate) registry: Option<Registry>,
    folder: TempDir,
}

impl Services {
    /// Starts them with settings that let nothing happen in the background
    /// that would hit one subject and not another: no timed checkpoint, no
    /// autovacuum.
    pub(crate) fn start(set: Set) -> Result<Self> {
        progress!("starting PostgreSQL and Kafka");
        let postgres = Postgres::builder()
            .setting("shared_buffers", "512MB")
            .setting("max_wal_size", "8GB")
            .setting("checkpoint_timeout", "1d")
            .setting("autovacuum", "off")
            .start()?;
        // Nobody kills this broker, so that it may be silent for a while.
        let kafka = Kafka::builder()
            .property("broker.session.timeout.ms", "30000")
            .jvm_args(["-Xmx1g"])
            .start()?;
        // Named as those of the servers, so that one which is left behind by a
        // kill goes with theirs at the next start.
        let name = format!("walpost-{}-", process::id());
        let folder = tempfile::Builder::new().prefix(&name).tempdir()?;
        let services = Self { postgres, kafka, registry: None, folder };
        let mut database = services.connect()?;
        database.with(async |client| Migrator::new().set(set).migrate(client).await)?;
        Ok(services)
    }

    /// Starts a registry of schemas beside them.
    pub(crate) fn start_registry(&mut self) -> Result<()> {
        progress!("starting a schema registry");
        self.registry = Some(Registry::start_new()?);
        Ok(())
    }

    pub(crate) fn connect(&self) -> Result<Database> {
        Database::connect(&self.conninfo())
    }

    /// Over the Unix socket.
    pub(crate) fn conninfo(&self) -> String {
        self.postgres.socket_conninfo(DATABASE)
    }

    /// CPU time so far of `subject`, if it runs, and of everyone else.
    pub(crate) fn load(&self, elapsed: Duration, subject: Option<u32>) -> Result<Load> {
        let running = "both servers run";
        let postgres = self.postgres.pid().context(running)?;
        Load::sample(elapsed, subject, postgres, self.kafka.pid().context(running)?)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A new folder for the files of a subject.
    pub(crate) fn new_folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.path().join(name);
        std::fs::create_dir(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(path)
    }
}

pub(crate) fn create_slot(database: &Database, slot: &str) -> Result<()> {
    database.run(&format!("select pg_create_logical_replication_slot('{slot}', 'pgoutput')"))
}

/// Waits until someone streams from the slot, or nobody does.
pub(crate) fn await_slot(database: &Database, slot: &str, active: bool) -> Result<()> {
    let sql = format!(
        "select count(*) from pg_replication_slots where slot_name = '{slot}' and active = {active}"
    );
    let start = Instant::now();
    while database.number(&sql)? == 0 {
        if start.elapsed() > SLOT_LIMIT {
            bail!("slot {slot} did not become active = {active} within {SLOT_LIMIT:?}");
        }
        thread::sleep(SLOT_POLL);
    }
    Ok(())
}

/// Drops a slot as soon as nobody streams from it.
pub(crate) fn drop_slot(database: &Database, slot: &str) -> Result<()> {
    await_slot(database, slot, false)?;
    database.run(&format!("select pg_drop_replication_slot('{slot}')"))
}
