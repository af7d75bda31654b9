//! Events written to PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod columns;
mod duplicates;
mod emit;
mod ids;
mod many;
mod partitioned;
mod refusals;
mod session;
mod transaction;

use tokio_postgres::Client;
use walpost_migrate::{Migrator, Set};
use walpost_outbox::NewEvent;
use walpost_testkit::{Database, fresh_database, unique_name};

/// A database with `walpost.outbox`.
async fn outbox() -> (Database, Client) {
    let database = fresh_database().await;
    let mut client = database.connect().await;
    Migrator::new().set(Set::Relay).migrate(&mut client).await.unwrap();
    (database, client)
}

fn event() -> NewEvent {
    NewEvent::new("order", "1", "placed")
}

async fn count(client: &Client, table: &str) -> i64 {
    let sql = format!("select count(*) from {table}");
    client.query_one(&sql, &[]).await.unwrap().get(0)
}

/// A slot that shows as text what is committed after its creation.
struct Slot<'a> {
    client: &'a Client,
    name: String,
}

impl<'a> Slot<'a> {
    async fn create(client: &'a Client) -> Self {
        let name = unique_name("outbox");
        let sql = "select pg_create_logical_replication_slot($1, 'test_decoding')";
        client.query(sql, &[&name]).await.unwrap();
        Self { client, name }
    }

    /// Inserts and messages since the last call.
    async fn changes(&self) -> Vec<String> {
        let sql = "select data from pg_logical_slot_get_changes($1, null, null, \
                   'include-xids', '0', 'skip-empty-xacts', '1')";
        let rows = self.client.query(sql, &[&self.name]).await.unwrap();
        rows.iter()
            .map(|row| row.get(0))
            .filter(|change: &String| change != "BEGIN" && change != "COMMIT")
            .collect()
    }

    async fn drop(self) {
        self.client.query("select pg_drop_replication_slot($1)", &[&self.name]).await.unwrap();
    }
}
