//! What a connector asks for beside its rows: snapshots, heartbeats, its slot, and
//! to be held.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    path::PathBuf,
    process::Output,
    thread,
    time::Duration,
};

use walpost_local::{Postgres, free_port};
use walpost_testkit::{
    Process, ReadRecord, create_topic, end_offsets, kafka, read_all, unique_name, until,
};

use crate::{
    cli::{stderr, stdout, walpost},
    mistakes::{migrated, server},
    ready::answers,
};

const LIMIT: Duration = Duration::from_secs(60);
const NONE: [(&str, &str); 1] = [("WALPOST_HTTP_LISTEN", "")];
const SLOTS: &str = "select count(*) from pg_replication_slots";

/// A database with an outbox, and a connector of it.
struct Shop {
    server: Postgres,
    folder: tempfile::TempDir,
    /// Names topics of this test alone.
    name: String,
    brokers: String,
}

impl Shop {
    fn new() -> Self {
        let server = server();
        migrated(&server, "shop");
        let folder = tempfile::tempdir().unwrap();
        let (name, brokers) = (unique_name("shop"), kafka().bootstrap().to_owned());
        let worker = format!("bootstrap.servers={brokers}\n");
        fs::write(folder.path().join("worker.properties"), worker).unwrap();
        Self { server, folder, name, brokers }
    }

    /// `connectors/orders.json` for it, with further properties in their place or
    /// beside the others.
    fn connector(&self, more: &[(&str, &str)]) -> PathBuf {
        let text = include_str!("../../../../connectors/orders.json");
        let mut file: serde_json::Map<_, _> = serde_json::from_str(text).unwrap();
        let port = self.server.port().to_string();
        let own =
            [("database.port", &*port), ("database.dbname", "shop"), ("topic.prefix", &self.name)];
        for (name, value) in own.iter().chain(more) {
            file.insert((*name).to_owned(), (*value).into());
        }
        self.file(&serde_json::Value::Object(file).to_string())
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.folder.path().join("orders.json");
        fs::write(&path, text).unwrap();
        path
    }

    fn args(&self, command: &str, path: &PathBuf) -> Vec<String> {
        let worker = self.folder.path().join("worker.properties");
        let shown = |path: &PathBuf| path.display().to_string();
        vec![command.into(), shown(path), "--worker".into(), shown(&worker)]
    }

    fn start(&self, path: &PathBuf) -> Process {
        Process::start(env!("CARGO_BIN_EXE_walpost"), self.args("run", path), NONE)
    }

    fn answer(&self, command: &str, path: &PathBuf) -> Output {
        let args = self.args(command, path);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        walpost(&args, &NONE)
    }

    fn streaming(&self, path: &PathBuf) -> Process {
        let relay = self.start(path);
        relay.wait_for_log("streaming", LIMIT);
        relay
    }

    fn sql(&self, sql: &str) -> String {
        self.server.psql("shop", sql).unwrap().trim().to_owned()
    }

    fn insert(&self, id: u32) {
        self.sql(&format!(
            "insert into walpost.outbox (id, aggregatetype, aggregateid, type, payload) values \
             ('00000000-0000-4000-8000-{id:012}', '{}', 'key-1', 'Paid', '{id}')",
            self.name
        ));
    }

    async fn with_topic(self) -> Self {
        create_topic(&self.brokers, &self.topic(), 1, &[]).await;
        self
    }

    fn topic(&self) -> String {
        format!("outbox.event.{}", self.name)
    }

    /// The records of events, once there are so many.
    async fn records(&self, count: usize) -> Vec<ReadRecord> {
        let read = async || read_all(&self.brokers, &self.topic()).await;
        until(LIMIT, &format!("{count} records"), async || read().await.len() >= count).await;
        read().await
    }

    async fn values(&self, count: usize) -> Vec<String> {
        self.records(count).await.iter().map(|record| record.value_text().to_owned()).collect()
    }
}

#[tokio::test]
async fn a_catalogue_that_does_not_answer_ends_a_start_in_time() {
    let shop = Shop::new();
    let other = tokio_postgres::connect(&shop.server.url("shop"), tokio_postgres::NoTls).await;
    let (other, connection) = other.unwrap();
    let connection = tokio::spawn(connection);
    other.batch_execute("begin; lock pg_publication in access exclusive mode").await.unwrap();
    let mut args = shop.args("run", &shop.connector(&[]));
    args.extend(["--set", "pipeline.start_timeout_ms=2000"].map(str::to_owned));
    let relay = Process::start(env!("CARGO_BIN_EXE_walpost"), args, NONE);
    assert_eq!(relay.wait(LIMIT).code(), Some(3), "{}", relay.log());
    assert!(relay.log().contains("did not answer within"), "{}", relay.log());
    connection.abort();
}

/// The first steps beside what a Debezium has made: its publication stays, and
/// that it has read from the slot is not passed over.
#[tokio::test]
async fn a_connector_that_debezium_has_run_is_migrated_and_told_to_be_taken_over() {
    let shop = Shop::new();
    shop.server.psql("postgres", "create database theirs").unwrap();
    let sql = |sql: &str| shop.server.psql("theirs", sql).unwrap().trim().to_owned();
    sql("create table outbox (id uuid, aggregatetype text, aggregateid text, payload text)");
    sql("create publication dbz for table outbox");
    sql("select pg_create_logical_replication_slot('dbz', 'pgoutput')");
    let path = shop.connector(&[
        ("database.dbname", "theirs"),
        ("slot.name", "dbz"),
        ("publication.name", "dbz"),
        ("schema.include.list", "public"),
        ("table.include.list", "public.outbox"),
        ("transforms.outbox.table.fields.additional.placement", "aggregatetype:header"),
    ]);
    let migrated = walpost(&["migrate", "--connector", &path.display().to_string()], &NONE);
    assert!(migrated.status.success(), "{}", stderr(&migrated));
    let tables = "select string_agg(pubname || ' ' || schemaname, ', ' order by pubname) \
                  from pg_publication_tables";
    assert_eq!(sql(tables), "dbz public, walpost walpost");

    let checked = shop.answer("check", &path);
    let text = stdout(&checked);
    assert!(checked.status.success(), "{text}{}", stderr(&checked));
    assert!(text.contains("where the first start begins"), "{text}");
    assert!(text.contains("run `walpost take-over from-debezium` before"), "{text}");
    let relay = shop.streaming(&path);
    relay.wait_for_log("has published behind that comes again", LIMIT);
    assert!(relay.terminate(LIMIT).success(), "{}", relay.log());
    let text = stdout(&shop.answer("check", &path));
    assert!(!text.contains("take-over"), "it is ours now: {text}");
}

#[tokio::test]
async fn each_start_of_a_connector_publishes_what_its_snapshot_says() {
    let shop = Shop::new().with_topic().await;
    (1..=3).for_each(|id| shop.insert(id));
    let only = "select * from walpost.outbox where payload <> '2' order by id";
    let path = shop.connector(&[
        ("snapshot.mode", "always"),
        ("snapshot.include.collection.list", "walpost.outbox"),
        ("snapshot.select.statement.overrides", "walpost.outbox"),
        ("snapshot.select.statement.overrides.walpost.outbox", only),
    ]);
    let checked = stdout(&shop.answer("check", &path));
    assert!(checked.contains("published first: 2 of walpost.outbox"), "{checked}");

    let relay = shop.streaming(&path);
    assert_eq!(shop.values(2).await, ["1", "3"]);
    shop.insert(4);
    assert_eq!(shop.values(3).await, ["1", "3", "4"]);
    assert!(relay.terminate(LIMIT).success(), "{}", relay.log());
    let relay = shop.streaming(&path);
    let records = shop.records(6).await;
    let again: Vec<_> = records[3..].iter().map(ReadRecord::value_text).collect();
    assert_eq!(again, ["1", "3", "4"]);
    assert!(records[3..].iter().all(|record| record.header_text("walpost-replay").is_some()));
    assert!(relay.terminate(LIMIT).success(), "{}", relay.log());
}

#[tokio::test]
async fn a_connector_for_its_rows_alone_ends_behind_them() {
    let shop = Shop::new().with_topic().await;
    (1..=2).for_each(|id| shop.insert(id));
    let path = shop.connector(&[("snapshot.mode", "initial_only")]);
    let relay = shop.start(&path);
    assert!(relay.wait(LIMIT).success(), "{}", relay.log());
    assert_eq!(shop.values(2).await, ["1", "2"]);
    assert_eq!(shop.sql(SLOTS), "0");
}

#[tokio::test]
async fn a_connector_beats_in_its_own_converters_and_runs_its_query() {
    let shop = Shop::new().with_topic().await;
    let beats = format!("beats.{}", shop.name);
    create_topic(&shop.brokers, &beats, 1, &[]).await;
    shop.sql("create table beat (at timestamptz, by text)");
    let path = shop.connector(&[
        ("heartbeat.interval.ms", "50"),
        ("topic.heartbeat.prefix", "beats"),
        ("heartbeat.action.query", "insert into beat values (now(), current_setting('my.name'))"),
        ("database.initial.statements", "set my.name = 'me;; too'; select 1"),
        ("key.converter", "org.apache.kafka.connect.json.JsonConverter"),
        ("key.converter.schemas.enable", "false"),
        ("transforms", "outbox,mark"),
        ("transforms.mark.type", "org.apache.kafka.connect.transforms.InsertHeader"),
        ("transforms.mark.header", "region"),
        ("transforms.mark.value.literal", "eu"),
    ]);
    let relay = shop.streaming(&path);
    let read = async || read_all(&shop.brokers, &beats).await;
    until(LIMIT, "heartbeats", async || read().await.len() >= 3).await;
    let record = &read().await[0];
    assert_eq!(record.key_text(), format!("{{\"serverName\":\"{}\"}}", shop.name));
    let value = record.value_text();
    assert!(value.starts_with("Struct{ts_ms=1") && value.ends_with('}'), "{value}");
    assert_eq!(record.header_text("region"), Some("eu"));
    assert_eq!(shop.sql("select distinct by from beat"), "me; too");
    // They are nobody's events.
    shop.insert(1);
    assert_eq!(shop.values(1).await, ["1"]);
    assert!(relay.terminate(LIMIT).success(), "{}", relay.log());
}

#[tokio::test]
async fn topics_that_do_not_exist_are_made_by_their_groups() {
    let shop = Shop::new();
    let beats = format!("__debezium-heartbeat.{}", shop.name);
    let path = shop.connector(&[
        ("heartbeat.interval.ms", "50"),
        ("topic.creation.groups", "beats"),
        ("topic.creation.beats.include", "__debezium-heartbeat.*"),
        ("topic.creation.beats.partitions", "1"),
        ("topic.creation.default.partitions", "3"),
        ("topic.creation.default.replication.factor", "-1"),
    ]);
    let checked = stdout(&shop.answer("check", &path));
    assert!(checked.contains(&format!("topic {beats} will be created")), "{checked}");
    let relay = shop.streaming(&path);
    shop.insert(1);
    for topic in [&shop.topic(), &beats] {
        relay.wait_for_log(&format!("topic created topic=\"{topic}\""), LIMIT);
    }
    assert_eq!(shop.values(1).await, ["1"]);
    until(LIMIT, "heartbeats", async || !read_all(&shop.brokers, &beats).await.is_empty()).await;
    let partitions = async |topic: &str| end_offsets(&shop.brokers, topic).await.len();
    assert_eq!((partitions(&shop.topic()).await, partitions(&beats).await), (3, 1));
    assert!(relay.terminate(LIMIT).success(), "{}", relay.log());
}

#[tokio::test]
async fn a_slot_that_a_stop_drops_costs_no_row_that_stays() {
    let shop = Shop::new().with_topic().await;
    let path = shop.connector(&[("slot.drop.on.stop", "true")]);
    let relay = shop.streaming(&path);
    shop.insert(1);
    assert_eq!(shop.values(1).await, ["1"]);
    assert!(relay.terminate(LIMIT).success(), "{}", relay.log());
    assert_eq!(shop.sql(SLOTS), "0");
    shop.insert(2);
    let relay = shop.streaming(&path);
    assert_eq!(shop.values(2).await, ["1", "2"]);
    assert!(relay.terminate(LIMIT).success(), "{}", relay.log());
}

#[tokio::test]
async fn columns_that_are_not_read_and_signals_are_told() {
    let shop = Shop::new().with_topic().await;
    shop.sql("create table signals (id text primary key, type text, data text)");
    shop.sql("alter publication walpost add table signals");
    let path = shop.connector(&[("column.exclude.list", "walpost.outbox.payload")]);
    let output = shop.answer("run", &path);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("column.exclude.list") || text.contains("payload"), "{text}");

    let path = shop.connector(&[("signal.data.collection", "public.signals")]);
    let relay = shop.streaming(&path);
    shop.sql("insert into signals values ('1', 'execute-snapshot', '{}')");
    assert!(!relay.wait(LIMIT).success(), "{}", relay.log());
    let log = relay.log();
    assert!(log.contains("a signal was inserted into public.signals"), "{log}");
}

#[tokio::test]
async fn what_is_to_be_mended_is_named_by_its_property() {
    let shop = Shop::new();
    let told = |more: &[(&str, &str)], said: &[&str]| {
        let path = shop.connector(more);
        for command in ["check", "run"] {
            let output = shop.answer(command, &path);
            let text = stdout(&output) + &stderr(&output);
            assert_eq!(output.status.code(), Some(3), "{text}");
            let told = text.lines().filter(|line| !line.starts_with("transforms."));
            let told: String = told.flat_map(|line| [line, "\n"]).collect();
            said.iter().for_each(|said| assert!(told.contains(said), "{said}: {told}"));
            assert!(!told.contains("router."), "{told}");
        }
    };
    let key = "transforms.outbox.table.field.event.key";
    let named = format!("has no column \"number\", which {key} (");
    told(&[(key, "number")], &[&named, "orders.json line 1) names", "name in transforms."]);
    shop.sql("alter table walpost.outbox rename aggregateid to number");
    let path = "transforms.outbox.table.field.event.id";
    told(&[(key, "number"), (path, "uuid")], &["which transforms.outbox.table.field.event.id ("]);
    let place = "transforms.outbox.table.fields.additional.placement";
    told(&[(key, "number"), (place, "type:partition")], &[place, "has to be integer"]);
    let other = [(key, "number"), ("publication.name", "nobodys")];
    told(&other, &["set publication.autocreate.mode = filtered"]);
}

#[tokio::test]
async fn where_no_session_is_given_the_properties_are_named_that_lead_there() {
    let shop = Shop::new();
    let nobody = free_port().unwrap().to_string();
    for (property, value, told) in [
        ("database.port", &*nobody, "PostgreSQL runs where database.hostname ("),
        ("database.dbname", "nobodys", "name one that exists, in database.dbname, or create it"),
        ("database.sslmode", "require", "or write database.sslmode = prefer"),
    ] {
        let output = shop.answer("check", &shop.connector(&[(property, value)]));
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains("next step (connection): ") && text.contains(told), "{text}");
    }
}

/// A registry that gives every request this answer.
fn registry(answer: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A small request is there as a whole, or nearly so.
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let length = answer.len();
            let head = "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length:";
            let _ = write!(stream, "{head} {length}\r\n\r\n{answer}");
        }
    });
    port
}

#[tokio::test]
async fn a_check_asks_the_registry_and_registers_nothing() {
    let shop = Shop::new();
    let checked = |port: u16, said: &str| {
        let url = format!("http://user:s3cret@127.0.0.1:{port}");
        let avro = ("value.converter", "io.confluent.connect.avro.AvroConverter");
        let path = shop.connector(&[avro, ("value.converter.schema.registry.url", &url)]);
        let output = shop.answer("check", &path);
        let text = stdout(&output);
        assert!(output.status.success(), "{text}{}", stderr(&output));
        let line = text.lines().find(|line| line.contains(" registry ")).unwrap().to_owned();
        assert!(line.contains(said), "{said}: {line}");
        assert!(!text.contains("s3cret"), "{text}");
    };
    let no_subject = r#"{"error_code": 40401, "message": "Subject not found."}"#;
    checked(registry(no_subject), "answers");
    checked(registry("<html>nothing here</html>"), "it refuses who asks, or is no registry");
    checked(free_port().unwrap(), "it does not answer");
}

#[tokio::test]
async fn a_connector_that_is_held_touches_nothing() {
    let shop = Shop::new();
    let whole = |path: &PathBuf, state: &str| {
        let config = fs::read_to_string(path).unwrap();
        shop.file(&format!(
            "{{\"name\": \"orders\", \"initial_state\": \"{state}\", \"config\": {config}}}"
        ))
    };
    let path = whole(&shop.connector(&[]), "STOPPED");
    let output = shop.answer("run", &path);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("write RUNNING"), "{}", stderr(&output));

    let path = whole(&shop.connector(&[]), "PAUSED");
    let port = free_port().unwrap();
    let listen = format!("127.0.0.1:{port}");
    let settings = [("WALPOST_HTTP_LISTEN", listen.as_str())];
    let relay = Process::start(env!("CARGO_BIN_EXE_walpost"), shop.args("run", &path), settings);
    relay.wait_for_log("write RUNNING", LIMIT);
    let body = answers(port, "503", "paused, and publishes nothing").await;
    assert!(body.contains("\"phase\":\"paused\""), "{body}");
    assert_eq!(shop.sql(SLOTS), "0");
    assert!(relay.terminate(LIMIT).success(), "{}", relay.log());
}
