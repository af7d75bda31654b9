//! SQL from threads that are not async.

use std::future::Future;

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls, types::PgLsn};

/// One connection with the runtime that drives it.
#[derive(Debug)]
pub(crate) struct Database {
    runtime: Runtime,
    client: Client,
}

impl Database {
    pub(crate) fn connect(conninfo: &str) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(connect(conninfo))?;
        Ok(Self { runtime, client })
    }

    fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Runs work that needs the client for itself.
    pub(crate) fn with<T>(&mut self, work: impl AsyncFnOnce(&mut Client) -> T) -> T {
        self.runtime.block_on(work(&mut self.client))
    }

    pub(crate) fn run(&self, sql: &str) -> Result<()> {
        self.wait(self.client.batch_execute(sql)).with_context(|| format!("running {sql:.60}"))
    }

    pub(crate) fn number(&self, sql: &str) -> Result<i64> {
        let row = self.wait(self.client.query_one(sql, &[]));
        Ok(row.with_context(|| format!("asking {sql:.60}"))?.get(0))
    }

    pub(crate) fn wal_position(&self) -> Result<PgLsn> {
        let row = self.wait(self.client.query_one("select pg_current_wal_insert_lsn()", &[]));
        Ok(row.context("asking for the end of the WAL")?.get(0))
    }
}

/// Connects on the runtime that it is called on.
pub(crate) async fn connect(conninfo: &str) -> Result<Client> {
    let (client, connection) =
        tokio_postgres::connect(conninfo, NoTls).await.context("connecting to PostgreSQL")?;
    tokio::spawn(connection);
    Ok(client)
}
