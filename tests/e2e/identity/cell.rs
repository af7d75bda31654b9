//! Services with their tables, the topics of their events, and a consumer of all of them.

use std::{
    process::{Command, Output},
    time::Duration,
};

use rdkafka::{
    ClientConfig,
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer},
};
use tokio_postgres::Client;
use walpost_migrate::{Migrator, Set};
use walpost_testkit::{
    Database, Process, SharedPostgres, create_topic, end_offsets, kafka, postgres, postgres_of,
    read_all, unique_name, until,
};
use walpost_tests::{LIMIT, walpost_binary};

use super::{By, Ids, Shape};
use crate::CONSUMER;

/// Rows of a table, in two halves.
const HALF: i64 = 4;

/// A table of a service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    service: usize,
    name: &'static str,
}

pub(super) struct Cell {
    pub(super) ids: Ids,
    base: String,
    server: &'static SharedPostgres,
    pub(super) services: Vec<Database>,
    tables: Vec<Table>,
    /// By table: those of Debezium differ, as its records have no other source.
    topics: Vec<String>,
    /// Each of them once.
    distinct_topics: Vec<String>,
    effects: Database,
    consumer: Process,
}

impl Cell {
    pub(super) async fn open(ids: Ids, by: By, shape: Shape) -> Self {
        // A newer server is fetched without the programs that dump it.
        let server = if by == By::Restored { postgres_of(15) } else { postgres() };
        let base = unique_name("ids").replace('-', "_");
        let (count, names) = match shape {
            Shape::OneService => (1, &["ord"][..]),
            Shape::TwoServices => (2, &["ord"][..]),
            Shape::TwoTables => (1, &["ord", "bill"][..]),
        };
        let mut services = Vec::new();
        let (mut tables, mut topics) = (Vec::new(), Vec::new());
        for service in 0..count {
            let database = server.fresh_database().await;
            let mut client = database.connect().await;
            Migrator::new().set(Set::Relay).migrate(&mut client).await.unwrap();
            for name in names {
                create(&client, name, ids).await;
                tables.push(Table { service, name });
                let of = match by {
                    By::Debezium => format!("{name}{service}"),
                    _ => "all".to_owned(),
                };
                topics.push(format!("{base}.{of}"));
            }
            services.push(database);
        }
        let mut distinct_topics = topics.clone();
        distinct_topics.dedup();
        for topic in &distinct_topics {
            create_topic(kafka().bootstrap(), topic, 1, &[]).await;
        }
        let effects = postgres().fresh_database().await;
        let mut client = effects.connect().await;
        Migrator::new().set(Set::Consumer).migrate(&mut client).await.unwrap();
        let effect = "create table effect (n bigint generated always as identity, event_id text \
                      not null, aggregate text not null, seq bigint not null)";
        client.batch_execute(effect).await.unwrap();
        let args = [effects.url(), kafka().bootstrap(), &base, &distinct_topics.join(",")];
        let consumer = Process::start(CONSUMER, args, [("", ""); 0]);
        Self { ids, base, server, services, tables, topics, distinct_topics, effects, consumer }
    }

    /// Settings of a pipeline, of all tables of its service or of one.
    pub(super) fn env(&self, table: Table, pipeline: &str, of_one: bool) -> Vec<(String, String)> {
        let of_service = self.tables.iter().filter(|other| other.service == table.service);
        let names: Vec<String> = match of_one {
            true => vec![format!("public.{}", table.name)],
            false => of_service.map(|table| format!("public.{}", table.name)).collect(),
        };
        let slot = format!("{}_{}_{pipeline}", self.base, table.service);
        [
            ("WALPOST_POSTGRES_URL", self.services[table.service].url()),
            ("WALPOST_PIPELINE_NAME", pipeline),
            ("WALPOST_PIPELINE_SLOT", &slot),
            ("WALPOST_PIPELINE_PUBLICATION", pipeline),
            ("WALPOST_PIPELINE_TABLES", &names.join(",")),
            ("WALPOST_PIPELINE_CHECKPOINT_INTERVAL_MS", "200"),
            ("WALPOST_PIPELINE_SETTLE_MS", "200"),
            ("WALPOST_ROUTER_TOPIC_REPLACEMENT", &format!("{}.${{routedByValue}}", self.base)),
            ("WALPOST_ROUTER_EVENT_TYPE", "type"),
            ("WALPOST_HTTP_LISTEN", ""),
            ("WALPOST_KAFKA_BOOTSTRAP_SERVERS", kafka().bootstrap()),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    /// A relay for each service, or for each table.
    pub(super) fn relays(&self, pipeline: &str, by: By, more: &[(&str, &str)]) -> Vec<Process> {
        let is_polling = by == By::Polling;
        let first_of = |table: &&Table| is_polling || table.name == "ord";
        let start = |table: &Table| {
            let name = if is_polling { table.name } else { pipeline };
            let mut env = self.env(*table, name, is_polling);
            if is_polling {
                env.push(("WALPOST_PIPELINE_SOURCE".to_owned(), "polling".to_owned()));
            }
            let more = more.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            env.extend(more);
            let env = env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            Process::start(walpost_binary(), ["run"], env)
        };
        self.tables.iter().filter(first_of).map(start).collect()
    }

    pub(super) fn walpost(&self, table: Table, args: &[&str], more: &[(&str, &str)]) -> Output {
        let mut command = Command::new(walpost_binary());
        command.args(args).envs(self.env(table, "main", false));
        command.envs(more.iter().copied()).output().unwrap()
    }

    /// Half of the rows of each table.
    pub(super) async fn insert(&self, half: i64) {
        for (table, topic) in self.tables.iter().zip(&self.topics) {
            let client = self.services[table.service].connect().await;
            let (service, name) = (table.service, table.name);
            let route = topic.strip_prefix(&format!("{}.", self.base)).unwrap();
            let id = if self.ids == Ids::Text { ("id, ", "'order-' || n, ") } else { ("", "") };
            let insert = format!(
                "insert into public.{name} ({}aggregatetype, aggregateid, type, payload) \
                 select {}'{route}', '{service}-{name}-' || n, 'Placed', \
                 json_build_object('seq', n)::jsonb from generate_series({}, {}) n",
                id.0,
                id.1,
                half * HALF + 1,
                (half + 1) * HALF
            );
            client.batch_execute(&insert).await.unwrap();
        }
    }

    /// Writes the records of all rows as Debezium does: without Walpost's headers.
    pub(super) async fn debezium(&self) {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", kafka().bootstrap())
            .set("enable.idempotence", "true")
            .create()
            .unwrap();
        for (table, topic) in self.tables.iter().zip(&self.topics) {
            let client = self.services[table.service].connect().await;
            let rows = format!(
                "select id::text, aggregateid, payload::text from public.{} order by seq",
                table.name
            );
            for row in client.query(&rows, &[]).await.unwrap() {
                let (id, key, value): (&str, &str, &str) = (row.get(0), row.get(1), row.get(2));
                let headers = OwnedHeaders::new().insert(Header { key: "id", value: Some(id) });
                let record = BaseRecord::to(topic).key(key).payload(value).headers(headers);
                producer.send(record).map_err(|(error, _)| error).unwrap();
            }
        }
        producer.flush(Duration::from_secs(30)).unwrap();
    }

    pub(super) fn rows(&self, halves: i64) -> i64 {
        self.tables.len() as i64 * halves * HALF
    }

    pub(super) async fn records(&self) -> i64 {
        let mut count = 0;
        for topic in &self.distinct_topics {
            count += read_all(kafka().bootstrap(), topic).await.len() as i64;
        }
        count
    }

    pub(super) async fn records_reach(&self, count: i64) {
        until(LIMIT, &format!("{count} records"), async || self.records().await >= count).await;
    }

    /// The consumer has read everything, and each row has one effect.
    pub(super) async fn each_row_has_one_effect(&self, halves: i64, what: &str) {
        let client = self.effects.connect().await;
        for topic in &self.distinct_topics {
            let end: i64 = end_offsets(kafka().bootstrap(), topic).await.iter().sum();
            let read = "select coalesce(sum(next_offset), 0)::int8 from walpost.position \
                        where topic = $1";
            until(LIMIT, &format!("{topic} is read ({what})"), async || {
                let read: i64 = client.query_one(read, &[topic]).await.unwrap().get(0);
                assert!(self.consumer.is_running(), "{}", self.consumer.log());
                read >= end
            })
            .await;
        }
        let effects = "select count(*), count(distinct aggregate) from effect";
        let row = client.query_one(effects, &[]).await.unwrap();
        let rows = self.rows(halves);
        assert_eq!((row.get(0), row.get(1)), (rows, rows), "effects and rows, {what}");
    }

    /// A replay of every table; how each ended.
    pub(super) fn replay(&self, more: &[(&str, &str)]) -> Vec<(Option<i32>, String)> {
        let replay = |table: &Table| {
            let name = format!("public.{}", table.name);
            let output =
                self.walpost(*table, &["replay", "--all", "--table", &name, "--yes"], more);
            let text = [&output.stdout[..], &output.stderr].concat();
            (output.status.code(), String::from_utf8(text).unwrap())
        };
        self.tables.iter().map(replay).collect()
    }

    /// The databases are restored elsewhere from dumps; the old ones are gone.
    pub(super) async fn restore(&mut self) {
        for database in &mut self.services {
            let restored = self.server.fresh_database().await;
            database.dump().await.restore(&restored);
            *database = restored;
        }
    }

    pub(super) async fn forget_pipelines(&self) {
        let drop = "select count(pg_drop_replication_slot(slot_name)) from pg_replication_slots \
                    where database = current_database() and not active";
        for service in &self.services {
            let client = service.connect().await;
            until(LIMIT, "the slot is free", async || {
                client.query_one(drop, &[]).await.unwrap().get::<_, i64>(0) == 1
            })
            .await;
            client.batch_execute("delete from walpost.checkpoint").await.unwrap();
        }
    }

    pub(super) async fn has_slots(&self) -> bool {
        for service in &self.services {
            let client = service.connect().await;
            let begun = "select count(*) from walpost.checkpoint where initial = 'done'";
            if client.query_one(begun, &[]).await.unwrap().get::<_, i64>(0) == 0 {
                return false;
            }
        }
        true
    }

    pub(super) async fn each_row_is_committed(&self, halves: i64) {
        let client = self.effects.connect().await;
        let effects = "select count(*) from effect";
        until(LIMIT, "the effects", async || {
            let count: i64 = client.query_one(effects, &[]).await.unwrap().get(0);
            count == self.rows(halves)
        })
        .await;
    }
}

async fn create(client: &Client, name: &str, ids: Ids) {
    let create = format!(
        "create table public.{name} (id {}, aggregatetype text not null, \
         aggregateid text not null, type text not null, payload jsonb, \
         created_at timestamptz not null default clock_timestamp(), \
         xid xid8 not null default pg_current_xact_id(), \
         seq bigint not null generated always as identity, \
         status text not null default 'NEW', attempts int not null default 0, \
         next_attempt_at timestamptz, published_at timestamptz, last_error text)",
        ids.column()
    );
    client.batch_execute(&create).await.unwrap();
}
