//! A row is one event, whichever program publishes it, and equal ids of two
//! tables are two: effects exactly once, or a refusal before anything is published.

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
    Database, Process, create_topic, end_offsets, kafka, postgres, read_all, unique_name, until,
};
use walpost_tests::{LIMIT, walpost_binary};

use crate::CONSUMER;

/// Rows of a table, in two halves.
const HALF: i64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ids {
    Uuid,
    Ulid,
    Bigint,
    Text,
}

impl Ids {
    const ALL: [Self; 4] = [Self::Uuid, Self::Ulid, Self::Bigint, Self::Text];

    fn are_unique(self) -> bool {
        matches!(self, Self::Uuid | Self::Ulid)
    }

    fn column(self) -> &'static str {
        match self {
            Self::Uuid => "uuid primary key default gen_random_uuid()",
            // Hexadecimal digits are some of Crockford's.
            Self::Ulid => {
                "text primary key default \
                 '01' || upper(substr(replace(gen_random_uuid()::text, '-', ''), 1, 24))"
            }
            Self::Bigint => "bigint generated always as identity primary key",
            Self::Text => "text primary key",
        }
    }
}

/// Who publishes rows, at least for a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// Relays that read the WAL and are killed.
    Wal,
    /// Relays that poll and are killed.
    Polling,
    Replay,
    /// Records as Debezium writes them, and then Walpost.
    Debezium,
    /// Another pipeline that publishes all rows again.
    OtherPipeline,
    /// A pipeline on a database that was restored.
    Restored,
}

impl By {
    const ALL: [Self; 6] = [
        Self::Wal,
        Self::Polling,
        Self::Replay,
        Self::Debezium,
        Self::OtherPipeline,
        Self::Restored,
    ];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    OneService,
    TwoServices,
    TwoTables,
}

impl Shape {
    const ALL: [Self; 3] = [Self::OneService, Self::TwoServices, Self::TwoTables];
}

/// A table of a service.
#[derive(Clone, Copy, Debug)]
struct Table {
    service: usize,
    name: &'static str,
}

struct Cell {
    ids: Ids,
    base: String,
    services: Vec<Database>,
    tables: Vec<Table>,
    /// By table: those of Debezium differ, as its records have no other source.
    topics: Vec<String>,
    effects: Database,
    consumer: Process,
}

impl Cell {
    async fn open(ids: Ids, shape: Shape, one_topic: bool) -> Self {
        let base = unique_name("ids").replace('-', "_");
        let (services, names) = match shape {
            Shape::OneService => (1, &["ord"][..]),
            Shape::TwoServices => (2, &["ord"][..]),
            Shape::TwoTables => (1, &["ord", "bill"][..]),
        };
        let mut databases = Vec::new();
        let (mut tables, mut topics) = (Vec::new(), Vec::new());
        for service in 0..services {
            let database = postgres().fresh_database().await;
            let mut client = database.connect().await;
            Migrator::new().set(Set::Relay).migrate(&mut client).await.unwrap();
            for name in names {
                create(&client, name, ids).await;
                tables.push(Table { service, name });
                let of = if one_topic { "all".to_owned() } else { format!("{name}{service}") };
                topics.push(format!("{base}.{of}"));
            }
            databases.push(database);
        }
        let mut distinct = topics.clone();
        distinct.dedup();
        for topic in &distinct {
            create_topic(kafka().bootstrap(), topic, 1, &[]).await;
        }
        let effects = postgres().fresh_database().await;
        let mut client = effects.connect().await;
        Migrator::new().set(Set::Consumer).migrate(&mut client).await.unwrap();
        let effect = "create table effect (n bigint generated always as identity, event_id text \
                      not null, aggregate text not null, seq bigint not null)";
        client.batch_execute(effect).await.unwrap();
        let args = [effects.url(), kafka().bootstrap(), &base, &distinct.join(",")];
        let consumer = Process::start(CONSUMER, args, [("", ""); 0]);
        Self { ids, base, services: databases, tables, topics, effects, consumer }
    }

    /// Settings of a pipeline, of all tables of its service or of one.
    fn env(&self, table: Table, pipeline: &str, of_one: bool) -> Vec<(String, String)> {
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
    fn relays(&self, pipeline: &str, by: By, more: &[(&str, &str)]) -> Vec<Process> {
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

    fn walpost(&self, table: Table, args: &[&str], more: &[(&str, &str)]) -> Output {
        let mut command = Command::new(walpost_binary());
        command.args(args).envs(self.env(table, "main", false));
        command.envs(more.iter().copied()).output().unwrap()
    }

    /// Half of the rows of each table.
    async fn insert(&self, half: i64) {
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
    async fn debezium(&self) {
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

    fn rows(&self, halves: i64) -> i64 {
        self.tables.len() as i64 * halves * HALF
    }

    async fn records(&self) -> i64 {
        let mut topics = self.topics.clone();
        topics.dedup();
        let mut count = 0;
        for topic in topics {
            count += read_all(kafka().bootstrap(), &topic).await.len() as i64;
        }
        count
    }

    async fn records_reach(&self, count: i64) {
        until(LIMIT, &format!("{count} records"), async || self.records().await >= count).await;
    }

    /// The consumer has read everything, and each row has one effect.
    async fn each_row_has_one_effect(&self, halves: i64, what: &str) {
        let client = self.effects.connect().await;
        let mut topics = self.topics.clone();
        topics.dedup();
        for topic in &topics {
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
    fn replay(&self, more: &[(&str, &str)]) -> Vec<(Option<i32>, String)> {
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
    async fn restore(&mut self) {
        for database in &mut self.services {
            let restored = postgres().fresh_database().await;
            let dump = Command::new("pg_dump").args(["-d", database.url()]).output().unwrap();
            assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &dump.stdout).unwrap();
            let mut psql = Command::new("psql");
            psql.args(["-X", "-v", "ON_ERROR_STOP=1", "-d", restored.url(), "-f"]);
            let loaded = psql.arg(file.path()).output().unwrap();
            assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
            *database = restored;
        }
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

fn kill(relays: Vec<Process>) {
    for relay in relays {
        relay.kill();
    }
}

/// Rows that relays publish which are killed half-way.
async fn published_by(cell: &Cell, by: By) {
    let initial = [("WALPOST_PIPELINE_INITIAL", "publish")];
    cell.insert(0).await;
    let relays = cell.relays("main", by, &initial);
    cell.records_reach(cell.rows(1)).await;
    kill(relays);
    cell.insert(1).await;
    let relays = cell.relays("main", by, &initial);
    cell.records_reach(cell.rows(2)).await;
    cell.each_row_has_one_effect(2, "after a kill").await;
    kill(relays);
}

async fn replayed(cell: &Cell) {
    let relays = cell.relays("main", By::Wal, &[]);
    until(LIMIT, "slots", async || cell.has_slots().await).await;
    cell.insert(0).await;
    cell.records_reach(cell.rows(1)).await;
    cell.each_row_has_one_effect(1, "before the replay").await;
    for (code, text) in cell.replay(&[]) {
        assert_eq!(code, Some(0), "{text}");
    }
    cell.records_reach(2 * cell.rows(1)).await;
    cell.each_row_has_one_effect(1, "after the replay").await;
    kill(relays);
}

/// Rows that Debezium has published, which are then replayed by a pipeline that has
/// left them out. Without the header of the source all of it may be published again.
async fn taken_from_debezium(cell: &Cell, source_header: bool) {
    let more = [
        ("WALPOST_PIPELINE_INITIAL", "skip"),
        ("WALPOST_PIPELINE_SOURCE_HEADER", if source_header { "true" } else { "false" }),
    ];
    cell.insert(0).await;
    cell.debezium().await;
    cell.each_row_has_one_effect(1, "of Debezium").await;
    let relays = cell.relays("main", By::Wal, &more);
    until(LIMIT, "slots", async || cell.has_slots().await).await;
    cell.insert(1).await;
    cell.records_reach(cell.rows(2)).await;
    let is_refused = source_header && !cell.ids.are_unique();
    for (code, text) in cell.replay(&more) {
        assert_eq!(code == Some(2), is_refused, "{code:?} {text}");
        assert_eq!(text.contains("under another source"), is_refused, "{text}");
    }
    let published = if is_refused { 2 } else { 4 };
    cell.records_reach(cell.rows(published)).await;
    assert_eq!(cell.records().await, cell.rows(published));
    cell.each_row_has_one_effect(2, "after Debezium").await;
    kill(relays);
}

/// Another pipeline publishes every row again, here or where the tables were restored.
async fn published_again(cell: &mut Cell, by: By) {
    let relays = cell.relays("main", By::Wal, &[]);
    until(LIMIT, "slots", async || cell.has_slots().await).await;
    cell.insert(0).await;
    cell.records_reach(cell.rows(1)).await;
    cell.each_row_has_one_effect(1, "before").await;
    kill(relays);
    cell.forget_pipelines().await;
    if by == By::Restored {
        cell.restore().await;
    }
    cell.insert(1).await;
    let relays = cell.relays("other", By::Wal, &[("WALPOST_PIPELINE_INITIAL", "publish")]);
    cell.records_reach(cell.rows(3)).await;
    cell.each_row_has_one_effect(2, "once all is published again").await;
    kill(relays);
}

impl Cell {
    async fn forget_pipelines(&self) {
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

    async fn has_slots(&self) -> bool {
        for service in &self.services {
            let client = service.connect().await;
            let begun = "select count(*) from walpost.checkpoint where initial = 'done'";
            if client.query_one(begun, &[]).await.unwrap().get::<_, i64>(0) == 0 {
                return false;
            }
        }
        true
    }
}

async fn run(ids: Ids, by: By, shape: Shape) {
    let mut cell = Cell::open(ids, shape, by != By::Debezium).await;
    match by {
        By::Wal | By::Polling => published_by(&cell, by).await,
        By::Replay => replayed(&cell).await,
        By::Debezium => {
            taken_from_debezium(&cell, true).await;
            let cell = Cell::open(ids, shape, false).await;
            taken_from_debezium(&cell, false).await;
        }
        By::OtherPipeline | By::Restored => published_again(&mut cell, by).await,
    }
}

#[tokio::test]
async fn two_services_with_equal_ids_in_one_topic_have_each_effect_once() {
    run(Ids::Bigint, By::Wal, Shape::TwoServices).await;
}

#[tokio::test]
async fn two_tables_that_another_pipeline_publishes_again_have_each_effect_once() {
    run(Ids::Bigint, By::OtherPipeline, Shape::TwoTables).await;
}

#[tokio::test]
#[ignore = "deep: 72 combinations"]
async fn each_event_has_one_effect_whatever_its_id_and_whoever_publishes_it() {
    for by in By::ALL {
        for ids in Ids::ALL {
            for shape in Shape::ALL {
                println!("{ids:?} {by:?} {shape:?}");
                run(ids, by, shape).await;
            }
        }
    }
}

/// Two databases whose pipelines have one name do not fence each other off.
#[tokio::test]
async fn transactional_pipelines_of_one_name_in_two_databases_have_two_ids() {
    let cell = Cell::open(Ids::Bigint, Shape::TwoServices, true).await;
    let relays = cell.relays("main", By::Wal, &[("WALPOST_SINK_PUBLISH", "transactional")]);
    until(LIMIT, "slots", async || cell.has_slots().await).await;
    for half in 0..2 {
        cell.insert(half).await;
        cell.each_row_is_committed(half + 1).await;
    }
    let mut ids = Vec::new();
    for service in &cell.services {
        let fence = "select fence from walpost.checkpoint";
        ids.push(service.connect().await.query_one(fence, &[]).await.unwrap().get::<_, String>(0));
    }
    assert!(ids.iter().all(|id| id.starts_with("walpost-main-")), "{ids:?}");
    assert_ne!(ids[0], ids[1]);
    for relay in &relays {
        assert!(!relay.log().contains("fenced"), "{}", relay.log());
    }
    kill(relays);
}

impl Cell {
    async fn each_row_is_committed(&self, halves: i64) {
        let client = self.effects.connect().await;
        let effects = "select count(*) from effect";
        until(LIMIT, "the effects", async || {
            let count: i64 = client.query_one(effects, &[]).await.unwrap().get(0);
            count == self.rows(halves)
        })
        .await;
    }
}
