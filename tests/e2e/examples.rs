//! The tables under `examples/`, as they are created there, through one suite
//! that polls them and reads them from the WAL.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;
use tokio_postgres::Client;
use walpost_migrate::{Migrator, Set};
use walpost_testkit::{
    Committed, Database, Process, Published, ReadRecord, create_topic, fresh_database, judge,
    kafka, read_all, unique_name, until,
};
use walpost_tests::{LIMIT, SETTLES, walpost_binary};

/// One of the tables.
struct Example {
    folder: &'static str,
    /// Inserts the event `$1` of the thing `$2`, both numbers.
    insert: &'static str,
    /// Header `id`, thing, key and value of every event, in insert order.
    events: &'static str,
    /// How many rows are in the state of one that is published.
    published: &'static str,
}

const EXAMPLES: [Example; 4] = [
    Example {
        folder: "finance-outbox",
        insert: "insert into finance_outbox (event_type, payload, idempotency_key) values \
                 ('invoice.paid', jsonb_build_object('n', $1::int), \
                 'invoice.paid:' || $2::int || ':' || $1)",
        // Nothing in the table says which events belong together.
        events: "select idempotency_key, idempotency_key, idempotency_key, payload::text \
                 from finance_outbox order by created_at",
        published: "select count(*) from finance_outbox where delivery_status = 'delivered' \
                    and delivered_at is not null and delivery_attempts = 0",
    },
    Example {
        folder: "camel-case-outbox",
        insert: "insert into \"outbox\" (\"destination\", \"payload\") values \
                 ('billingProvider', jsonb_build_object('n', $1::int, 'of', $2::int))",
        events: "select id::text, id::text, id::text, payload::text from \"outbox\" \
                 order by \"createdAt\"",
        published: "select count(*) from \"outbox\" where status = 'sent' \
                    and \"updatedAt\" is not null",
    },
    Example {
        folder: "order-events",
        insert: "insert into outbox_events (order_id, event_type, payload) values \
                 ($2::int, 'OrderPlaced', jsonb_build_object('n', $1::int))",
        events: "select id::text, order_id::text, order_id::text, payload::text \
                 from outbox_events order by outbox_events.id",
        published: "select count(*) from outbox_events where status = 'processed'",
    },
    Example {
        folder: "outbox-events",
        insert: "insert into outbox_events (aggregate_type, aggregate_id, event_type, payload, \
                 headers) values ('order', $2::int, 'OrderPlaced', \
                 jsonb_build_object('n', $1::int), '{\"tenant\": \"t\"}')",
        events: "select id::text, aggregate_id, aggregate_id, payload::text from outbox_events \
                 order by created_at",
        published: "select count(*) from outbox_events where status = 'PUBLISHED' \
                    and published_at is not null",
    },
];

const PATIENT_ATTEMPTS: [(&str, &str); 2] =
    [("WALPOST_POLLING_SEND_TIMEOUT_MS", "60000"), ("WALPOST_POLLING_CLAIM_TIMEOUT_MS", "70000")];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Polling,
    Wal,
}

/// An example in a database, on its way to a topic.
struct Stage {
    example: &'static Example,
    way: Way,
    database: Database,
    client: Client,
    topic: String,
    slot: String,
}

impl Stage {
    async fn open(folder: &str, way: Way) -> Self {
        let example = EXAMPLES.iter().find(|example| example.folder == folder).unwrap();
        let database = fresh_database().await;
        let mut client = database.connect().await;
        Migrator::new().set(Set::Relay).migrate(&mut client).await.unwrap();
        let topic = unique_name("example");
        create_topic(kafka().bootstrap(), &topic, 3, &[]).await;
        let slot = unique_name("slot").replace('-', "_");
        let stage = Self { example, way, database, client, topic, slot };
        stage.apply("schema.sql").await;
        stage
    }

    fn file(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        root.join("examples").join(self.example.folder).join(name)
    }

    /// Each statement by itself, as psql sends them.
    async fn apply(&self, name: &str) {
        let text = fs::read_to_string(self.file(name)).unwrap();
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("--"));
        let lines: Vec<&str> = lines.map(|line| line.split(" -- ").next().unwrap()).collect();
        for statement in lines.join("\n").split(';').filter(|text| !text.trim().is_empty()) {
            self.client.batch_execute(statement).await.unwrap();
        }
    }

    fn env(&self) -> Vec<(&'static str, String)> {
        let (file, patience) = match self.way {
            // No attempt fails for a slow broker.
            Way::Polling => ("polling.toml", &PATIENT_ATTEMPTS[..]),
            Way::Wal => ("wal.toml", &[SETTLES][..]),
        };
        let mut env = vec![
            ("WALPOST_CONFIG", self.file(file).display().to_string()),
            ("WALPOST_POSTGRES_URL", self.database.url().to_owned()),
            ("WALPOST_KAFKA_BOOTSTRAP_SERVERS", kafka().bootstrap().to_owned()),
            ("WALPOST_PIPELINE_SLOT", self.slot.clone()),
            ("WALPOST_ROUTER_TOPIC_REPLACEMENT", self.topic.clone()),
            ("WALPOST_HTTP_LISTEN", String::new()),
        ];
        env.extend(patience.iter().map(|(name, value)| (*name, (*value).to_owned())));
        env
    }

    fn relay(&self) -> Process {
        let env = self.env();
        let env = env.iter().map(|(name, value)| (*name, value.as_str()));
        Process::start(walpost_binary(), ["run"], env)
    }

    fn command(&self, args: &[&str]) -> Output {
        Command::new(walpost_binary()).args(args).envs(self.env()).output().unwrap()
    }

    /// What `walpost check` says of one thing: how it is, and what to do.
    fn checked(&self, name: &str) -> (String, String) {
        let output = self.command(&["check", "--json"]);
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut checks = json["checks"].as_array().unwrap().iter();
        let check = checks.find(|check| check["name"] == name);
        let check = check.unwrap_or_else(|| panic!("no check {name:?} in {json}"));
        let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
        (text("outcome"), text("next_step"))
    }

    async fn insert(&self, client: &Client, events: std::ops::Range<i32>) {
        for event in events {
            client.execute(self.example.insert, &[&event, &(event % 4)]).await.unwrap();
        }
    }

    async fn number(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    async fn records(&self, count: usize) -> Vec<ReadRecord> {
        until(LIMIT, &format!("{count} records"), async || {
            read_all(kafka().bootstrap(), &self.topic).await.len() >= count
        })
        .await;
        read_all(kafka().bootstrap(), &self.topic).await
    }

    /// Partial indexes are asked for, and enough.
    async fn check_indexes(&self) {
        assert_eq!(self.checked("outbox table").0, "ok");
        let (before, next_step) = self.checked("partial index");
        let asked = fs::read_to_string(self.file("polling.sql")).unwrap();
        for ddl in asked.lines().filter(|line| line.starts_with("create")) {
            assert_eq!(before, "warn");
            assert!(next_step.contains(ddl.trim_end_matches(';')), "{next_step}\n{ddl}");
        }
        self.apply("polling.sql").await;
        assert_eq!(self.checked("partial index").0, "ok");
    }

    /// The relay works: for the WAL, from the next event on.
    async fn is_ready(&self, relay: &Process) {
        if self.way == Way::Polling {
            return;
        }
        let made = "select count(*) from walpost.checkpoint where initial = 'done'";
        until(LIMIT, "the slot", async || {
            assert!(relay.is_running(), "{}", relay.log());
            self.number(made).await == 1
        })
        .await;
    }
}

const EVENTS: i32 = 120;

/// Events before, during and after a kill, one of them committed late, arrive in
/// order and as they were written.
async fn suite(folder: &str, way: Way) {
    let stage = Stage::open(folder, way).await;
    if way == Way::Polling {
        stage.check_indexes().await;
    }
    let relay = stage.relay();
    stage.is_ready(&relay).await;
    let late = stage.database.connect().await;
    late.batch_execute("begin").await.unwrap();
    // An event of a thing of its own: nobody else writes of it meanwhile.
    late.execute(stage.example.insert, &[&EVENTS, &1_000]).await.unwrap();
    stage.insert(&stage.client, 0..EVENTS / 2).await;
    stage.records(EVENTS as usize / 3).await;
    relay.kill();
    stage.insert(&stage.client, EVENTS / 2..EVENTS).await;
    let relay = stage.relay();
    stage.records(EVENTS as usize).await;
    late.batch_execute("commit").await.unwrap();
    let events = stage.client.query(stage.example.events, &[]).await.unwrap();
    let total = EVENTS as usize + 1;
    assert_eq!(events.len(), total);
    let column = |index: usize| events.iter().map(move |row| row.get::<_, String>(index));
    until(LIMIT, "every event", async || {
        let records = read_all(kafka().bootstrap(), &stage.topic).await;
        column(0).all(|id| records.iter().any(|one| one.header_text("id") == Some(&id)))
    })
    .await;
    if way == Way::Polling {
        until(LIMIT, "every row in its state", async || {
            stage.number(stage.example.published).await == total as i64
        })
        .await;
        let status = stage.command(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&status.stdout).unwrap();
        assert_eq!(
            (&status["polled"]["pending"], &status["polled"]["failed"]),
            (&0.into(), &0.into())
        );
    }
    let records = stage.records(total).await;
    for ((id, key), value) in column(0).zip(column(2)).zip(column(3)) {
        let record = records.iter().find(|one| one.header_text("id") == Some(&id)).unwrap();
        assert_eq!(record.key.as_deref(), Some(key.as_bytes()));
        assert_eq!(record.value.as_deref(), Some(value.as_bytes()));
    }
    let committed: Vec<Committed> =
        column(0).zip(column(1)).map(|(id, aggregate)| Committed { id, aggregate }).collect();
    let published = |record: &ReadRecord| Published {
        id: record.header_text("id").unwrap().to_owned(),
        partition: record.partition,
        offset: record.offset,
    };
    let published: Vec<Published> = records.iter().map(published).collect();
    let report = judge(&committed, &published, None);
    match way {
        Way::Polling => report.assert_at_least_once(),
        Way::Wal => report.assert_exactly_once(),
    }
    drop(relay);
}

#[tokio::test]
async fn example_finance_outbox_is_polled() {
    suite("finance-outbox", Way::Polling).await;
}

#[tokio::test]
async fn example_finance_outbox_is_read_from_the_wal() {
    suite("finance-outbox", Way::Wal).await;
}

#[tokio::test]
async fn example_camel_case_outbox_is_polled() {
    suite("camel-case-outbox", Way::Polling).await;
}

#[tokio::test]
async fn example_camel_case_outbox_is_read_from_the_wal() {
    suite("camel-case-outbox", Way::Wal).await;
}

#[tokio::test]
async fn example_order_events_is_polled() {
    suite("order-events", Way::Polling).await;
}

#[tokio::test]
async fn example_order_events_is_read_from_the_wal() {
    suite("order-events", Way::Wal).await;
}

#[tokio::test]
async fn example_outbox_events_is_polled() {
    suite("outbox-events", Way::Polling).await;
}

#[tokio::test]
async fn example_outbox_events_is_read_from_the_wal() {
    suite("outbox-events", Way::Wal).await;
}
