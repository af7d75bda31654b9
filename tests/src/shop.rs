use std::time::Duration;

use tokio_postgres::Client;
use walpost_migrate::{Migrator, Set};
use walpost_testkit::{
    Applied, Committed, Database, Process, Published, ReadRecord, Report, SharedPostgres,
    create_topic, judge, kafka, postgres, read_all, unique_name, until,
};

use crate::{binary::walpost_binary, rises_to};

/// Bound on everything that a test waits for.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Of a relay's environment: it waits so long for what a dead one has sent and a busy
/// broker has not taken yet.
pub const SETTLES: (&str, &str) = ("WALPOST_PIPELINE_SETTLE_MS", "3000");

/// What `walpost check` asks for of an outbox that is polled.
pub const POLLED_COLUMNS: &str = "alter table walpost.outbox add status text not null default 'NEW', \
    add attempts int not null default 0, add next_attempt_at timestamptz, \
    add published_at timestamptz, add last_error text; \
    create index on walpost.outbox (seq, id) where status in ('NEW', 'FAILED'); \
    create index on walpost.outbox (aggregatetype, aggregateid, seq, id) \
    where status in ('NEW', 'FAILED')";

/// A database with orders, an outbox and effects, and a topic for its events.
#[derive(Debug)]
pub struct Shop {
    /// The database.
    pub database: Database,
    /// Name of the pipeline, and prefix of everything that is named.
    pub name: String,
    /// Where the events of orders go.
    pub topic: String,
}

/// One row that the handler wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The event.
    pub event_id: String,
    /// Its aggregate.
    pub aggregate: String,
    /// The number that the shop gave it within the aggregate.
    pub seq: i64,
}

impl Shop {
    /// A shop on the shared server, with a topic of `partitions`.
    pub async fn open(partitions: i32) -> Self {
        Self::open_on(postgres(), partitions).await
    }

    /// A shop on `server`.
    pub async fn open_on(server: &'static SharedPostgres, partitions: i32) -> Self {
        let shop = Self::without_topic(server).await;
        create_topic(kafka().bootstrap(), &shop.topic, partitions, &[]).await;
        shop
    }

    /// A shop whose topic does not exist.
    pub async fn without_topic(server: &'static SharedPostgres) -> Self {
        let database = server.fresh_database().await;
        let mut client = database.connect().await;
        for set in [Set::Relay, Set::Consumer] {
            Migrator::new().set(set).migrate(&mut client).await.unwrap();
        }
        client
            .batch_execute(
                "create table shop_order (id bigint generated always as identity primary key, \
                 aggregate text not null, seq bigint not null); \
                 create table effect (n bigint generated always as identity, event_id text not \
                 null, aggregate text not null, seq bigint not null)",
            )
            .await
            .unwrap();
        let name = unique_name("shop").replace('-', "_");
        Self { topic: format!("{name}.order"), database, name }
    }

    /// A SQL session.
    pub async fn connect(&self) -> Client {
        self.database.connect().await
    }

    /// Starts `walpost run` on this shop.
    pub fn relay(&self) -> Process {
        self.relay_with(&[])
    }

    /// Starts `walpost run` with further environment variables.
    pub fn relay_with(&self, more: &[(&str, &str)]) -> Process {
        let replacement = format!("{}.${{routedByValue}}", self.name);
        let slot = format!("walpost_{}", self.name);
        let mut env = vec![
            ("WALPOST_POSTGRES_URL", self.database.url()),
            ("WALPOST_PIPELINE_NAME", self.name.as_str()),
            ("WALPOST_PIPELINE_SLOT", slot.as_str()),
            ("WALPOST_PIPELINE_CHECKPOINT_INTERVAL_MS", "200"),
            SETTLES,
            ("WALPOST_ROUTER_TOPIC_REPLACEMENT", replacement.as_str()),
            ("WALPOST_HTTP_LISTEN", ""),
        ];
        env.extend_from_slice(more);
        let args = ["run", "--kafka", kafka().bootstrap()];
        Process::start(walpost_binary(), args, env)
    }

    /// Starts `walpost` with these arguments on this shop's database and under its
    /// pipeline, without brokers.
    pub fn walpost<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Process {
        let slot = format!("walpost_{}", self.name);
        let env = [
            ("WALPOST_POSTGRES_URL", self.database.url()),
            ("WALPOST_PIPELINE_NAME", self.name.as_str()),
            ("WALPOST_PIPELINE_SLOT", slot.as_str()),
            ("WALPOST_PIPELINE_CHECKPOINT_INTERVAL_MS", "200"),
            ("WALPOST_HTTP_LISTEN", ""),
        ];
        Process::start(walpost_binary(), args, env)
    }

    /// Waits until the slot is there, so that what is written from now on is
    /// in its stream.
    pub async fn slot_made(&self) {
        let client = self.connect().await;
        let sql = format!(
            "select exists (select from walpost.checkpoint where pipeline = '{}' \
             and initial in ('publish', 'done'))",
            self.name
        );
        until(LIMIT, "the slot", async || client.query_one(&sql, &[]).await.unwrap().get(0)).await;
    }

    /// Starts a consumer of this shop's topic, in one group and under one name
    /// for all of them. `env` may carry `WALPOST_FAILPOINT` and the settings of
    /// the program's own head comment.
    pub fn consumer(&self, program: &str, env: &[(&str, &str)]) -> Process {
        let args = [self.database.url(), kafka().bootstrap(), &self.name, &self.topic];
        Process::start(program, args, env.iter().copied())
    }

    /// Every event that the shop committed, in commit order per aggregate.
    pub async fn committed(&self) -> Vec<Committed> {
        let client = self.connect().await;
        let rows = client
            .query("select id::text, aggregateid from walpost.outbox order by seq", &[])
            .await
            .unwrap();
        rows.iter().map(|row| Committed { id: row.get(0), aggregate: row.get(1) }).collect()
    }

    /// Every record in the topic.
    pub async fn records(&self) -> Vec<ReadRecord> {
        read_all(kafka().bootstrap(), &self.topic).await
    }

    /// Every effect, in the order in which they were applied.
    pub async fn effects(&self) -> Vec<Effect> {
        let client = self.connect().await;
        let rows = client
            .query("select event_id, aggregate, seq from effect order by n", &[])
            .await
            .unwrap();
        let effect = |row: &tokio_postgres::Row| Effect {
            event_id: row.get(0),
            aggregate: row.get(1),
            seq: row.get(2),
        };
        rows.iter().map(effect).collect()
    }

    /// Waits until `count` effects are there, while there are more and more.
    pub async fn effects_reach(&self, count: i64) {
        let client = self.connect().await;
        rises_to(count, "effects", async || {
            client.query_one("select count(*) from effect", &[]).await.unwrap().get(0)
        })
        .await;
    }

    /// What is in the topic, as the oracle takes it.
    pub async fn published(&self) -> Vec<Published> {
        let published = |record: &ReadRecord| Published {
            id: record.header_text("id").unwrap_or_default().to_owned(),
            partition: record.partition,
            offset: record.offset,
        };
        self.records().await.iter().map(published).collect()
    }

    /// What the oracle says of database and topic.
    pub async fn judge_published(&self) -> Report {
        judge(&self.committed().await, &self.published().await, None)
    }

    /// What the oracle says of database, topic and effects.
    pub async fn judge(&self) -> Report {
        let published = self.published().await;
        let mut times = std::collections::HashMap::new();
        for effect in self.effects().await {
            *times.entry(effect.event_id).or_insert(0) += 1;
        }
        let applied: Vec<Applied> =
            times.into_iter().map(|(id, times)| Applied { id, times }).collect();
        judge(&self.committed().await, &published, Some(&applied))
    }

    /// Panics unless the effects of every aggregate came in its own order.
    pub async fn assert_effects_in_order(&self) {
        let mut last = std::collections::HashMap::new();
        for effect in self.effects().await {
            let before = last.insert(effect.aggregate.clone(), effect.seq);
            assert!(before.is_none_or(|before| before < effect.seq), "{effect:?} after {before:?}");
        }
    }
}
