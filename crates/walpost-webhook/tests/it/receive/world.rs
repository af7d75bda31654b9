//! A migrated database, a handler's table, and what stands in both.

use tokio_postgres::Client;
use walpost_inbox::Database as Place;
use walpost_migrate::{Migrator, Set};
use walpost_testkit::{Database, fresh_database};
use walpost_webhook::receive::{Builder, Receiver};

use crate::world::LIMIT;

const TABLES: &str = "
    create table effect (number int generated always as identity, event_id text not null);
    create table once (name text primary key);
    create table late (name text unique deferrable initially deferred);
    create table slow (number int);
    create function wait_for_lock() returns trigger language plpgsql as $$ begin
        perform pg_advisory_xact_lock(7);
        return null;
    end $$;
    create constraint trigger slow after insert on slow deferrable initially deferred
        for each row execute function wait_for_lock();
    create sequence tries";

pub(super) struct World {
    pub(super) database: Database,
    pub(super) client: Client,
}

impl World {
    pub(super) async fn new() -> Self {
        let database = fresh_database().await;
        let mut client = database.connect().await;
        Migrator::new().sets([Set::Relay, Set::Inbox]).migrate(&mut client).await.unwrap();
        client.batch_execute(TABLES).await.unwrap();
        Self { database, client }
    }

    pub(super) fn place(&self) -> Place {
        Place::config(self.database.config())
    }

    pub(super) fn builder(&self) -> Builder {
        Receiver::builder(self.place()).answer_within(LIMIT)
    }

    /// Ids of events with their effects, in the order of ids.
    pub(super) async fn effects(&self) -> Vec<String> {
        let sql = "select event_id from effect order by event_id";
        let rows = self.client.query(sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Source, id, type and state of all events, in the order of ids.
    pub(super) async fn rows(&self) -> Vec<[String; 4]> {
        let sql = "select source, event_id, event_type, processing_state from walpost.inbox \
                   order by event_id, source";
        let rows = self.client.query(sql, &[]).await.unwrap();
        rows.iter().map(|row| [0, 1, 2, 3].map(|column| row.get(column))).collect()
    }

    /// The one number that a query gives.
    pub(super) async fn number(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }
}
