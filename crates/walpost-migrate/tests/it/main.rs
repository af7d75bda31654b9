//! Migrations against PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod concurrency;
mod inbox;
mod migrate;
mod partitioned;
mod refusals;
mod render;
mod shape;

use tokio_postgres::Client;
use walpost_migrate::{Migrator, Set, State};

/// Schema and table of every table in the database that is not PostgreSQL's.
async fn tables(client: &Client) -> Vec<String> {
    let rows = client
        .query(
            "select schemaname || '.' || tablename from pg_tables \
             where schemaname not in ('pg_catalog', 'information_schema') order by 1",
            &[],
        )
        .await
        .unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

async fn all_applied(migrator: &Migrator, client: &Client) -> bool {
    let status = migrator.status(client).await.unwrap();
    assert!(!status.is_empty());
    status.iter().all(|one| matches!(one.state, State::Applied { .. }))
}

/// Of those that nobody has to choose.
fn total() -> usize {
    Set::DEFAULT.iter().map(|set| set.migrations().len()).sum()
}
