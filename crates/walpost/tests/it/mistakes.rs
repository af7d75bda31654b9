//! What people get wrong around a database, and what they are told: one
//! message, a next step, the exit code.

use std::time::Duration;

use rdkafka::{mocking::MockCluster, producer::DefaultProducerContext};
use walpost_local::{Auth, Postgres, Signal, send_signal};
use walpost_testkit::{Process, until};

use crate::cli::{stderr, stdout, walpost};

const LIMIT: Duration = Duration::from_secs(60);
/// Nobody listens there.
const NO_BROKER: &str = "127.0.0.1:1";

pub(crate) fn server() -> Postgres {
    Postgres::builder().throwaway().start().unwrap()
}

/// A database with Walpost's tables.
pub(crate) fn migrated(server: &Postgres, name: &str) -> String {
    server.psql("postgres", &format!("create database {name}")).unwrap();
    let url = server.url(name);
    let output = walpost(&["migrate", "--postgres", &url], &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    url
}

/// `run` ends with 3, one message and a next step that has these parts;
/// `check` finds the same.
pub(crate) fn refused(url: &str, set: &[&str], parts: &[&str]) {
    let common = ["--postgres", url, "--kafka", NO_BROKER, "--set", "http.listen="];
    let args = |command| [&[command], &common[..], set].concat();
    let output = walpost(&args("run"), &[]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert_eq!(text.matches("error: ").count(), 1, "{text}");
    assert!(text.contains("\nnext step: "), "{text}");
    for part in parts {
        assert!(text.contains(part), "expected {part:?} in: {text}");
    }
    let output = walpost(&args("check"), &[]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    for part in parts {
        assert!(text.contains(part), "expected {part:?} in: {text}");
    }
}

#[test]
#[ignore = "deep: takes long"]
fn a_login_that_is_refused_is_told_by_its_cause() {
    let auth = Auth::ScramSha256("right".into());
    let server = Postgres::builder().throwaway().auth(auth).start().unwrap();
    let (host, port) = (server.host(), server.port());
    for (login, database, parts) in [
        ("postgres:hunter2", "postgres", ["password authentication failed", "mend the password"]),
        ("postgres", "postgres", ["password missing", "name a password"]),
        ("postgres:right", "nowhere", ["\"nowhere\" does not exist", "createdb"]),
    ] {
        let url = format!("postgres://{login}@{host}:{port}/{database}");
        refused(&url, &["--set", "pipeline.start_timeout_ms=1"], &parts);
        for command in ["status", "migrate"] {
            let output = walpost(&[command, "--postgres", &url], &[]);
            let text = stderr(&output);
            assert_eq!(output.status.code(), Some(3), "{text}");
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            assert!(!text.contains("hunter2") && !text.contains("db error"), "{text}");
        }
    }
}

#[test]
fn a_role_that_does_not_exist_leads_to_pg_hba() {
    let server = server();
    let url = server.url("postgres").replace("postgres@", "nobody@");
    refused(&url, &[], &["role \"nobody\" does not exist", "pg_hba.conf"]);
}

#[test]
fn a_server_without_logical_wal_is_told_so() {
    let server = Postgres::builder().throwaway().setting("wal_level", "replica").start().unwrap();
    let url = migrated(&server, "shop");
    refused(&url, &[], &["wal_level is replica", "alter system set wal_level = 'logical'"]);
}

#[test]
#[ignore = "deep: takes long"]
fn what_is_missing_in_the_database_comes_with_the_statement_that_mends_it() {
    let server = server();
    refused(
        &server.url("postgres"),
        &[],
        &["walpost.checkpoint does not exist", "walpost migrate"],
    );
    let url = migrated(&server, "shop");
    let set = ["--set", "pipeline.tables=shop.events"];
    refused(&url, &set, &["shop.events does not exist", "name your own in `tables`"]);

    server.psql("shop", "create role app login replication").unwrap();
    let app = url.replace("postgres@", "app@");
    let schema = "grant usage on schema walpost to app";
    let output = walpost(&["status", "--postgres", &app], &[]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("permission denied") && text.contains("`grant usage on"), "{text}");
    refused(&app, &[], &["may not use schema \"walpost\"", "grant usage on schema"]);
    server.psql("shop", schema).unwrap();
    refused(&app, &[], &["may not read and write", "grant select, insert, update"]);

    server.psql("shop", "create role reader login").unwrap();
    let reader = url.replace("postgres@", "reader@");
    refused(&reader, &[], &["may not use replication", "alter role"]);

    let other = "create table other (id int primary key); \
                 create publication other for table other";
    server.psql("shop", other).unwrap();
    let set = ["--set", "pipeline.publication=other"];
    refused(
        &url,
        &set,
        &["does not contain outbox table", "alter publication \"other\" add table"],
    );

    let slot = "select pg_create_logical_replication_slot('taken', 'test_decoding')";
    server.psql("shop", slot).unwrap();
    let set = ["--set", "pipeline.slot=taken"];
    refused(&url, &set, &["test_decoding, not with pgoutput", "pg_drop_replication_slot"]);

    server
        .psql(
            "shop",
            "insert into walpost.outbox (aggregatetype, aggregateid, type) \
                         values ('order', '1', 'Placed')",
        )
        .unwrap();
    refused(&url, &[], &["holds rows", "initial = \"publish\""]);
}

/// Every column that the configuration names and the table has not, before the
/// first event is parked for it, with the key that named it.
#[test]
#[ignore = "deep: takes long"]
fn a_column_that_the_outbox_has_not_is_named_with_its_key() {
    let server = server();
    let url = migrated(&server, "shop");
    let names = [
        ("router.event_id", "uuid"),
        ("router.event_key", "aggregate"),
        ("router.event_payload", "body"),
        ("router.route_by_field", "topic"),
        ("router.event_timestamp", "at"),
    ];
    for (key, column) in names {
        let told = format!("no column \"{column}\", which {key} names");
        refused(&url, &["--set", &format!("{key}={column}")], &[&told, "name in router."]);
    }
    let placed = ["--set", "router.additional_placement=kindd:header"];
    let told = "\"kindd\", which router.additional_placement names";
    let error = ["--set", "router.additional_missing=error"];
    refused(&url, &[placed, error].concat(), &[told]);

    // Named and not by default: a row may lack it, a table may not.
    refused(&url, &placed, &[told, "correct the name in router.additional_placement"]);
    for key in ["router.headers_column", "router.event_type"] {
        let told = format!("no column \"headrs\", which {key} names, in walpost.outbox");
        refused(&url, &["--set", &format!("{key}=headrs")], &[&told]);
    }

    // There, but of a type with which each of its events would be parked.
    for (key, value, told) in [
        ("router.event_timestamp", "aggregateid", "is text and has to be timestamp or timestamptz"),
        ("router.additional_placement", "xid:partition", "is xid8 and has to be integer"),
    ] {
        let named = format!("which {key} names, {told}");
        refused(&url, &["--set", &format!("{key}={value}")], &[&named, "name a column of that"]);
    }

    // Webhooks, each of their columns.
    let output = walpost(&["migrate", "--set", "webhook", "--postgres", &url], &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let of_webhooks = [
        "sink.kind=webhook",
        "destination.a.url=https://a.example/hooks",
        "router.event_type=kindd",
        "webhook.destination_column=targt",
        "webhook.key_column=nokey",
        "webhook.path_column=pth",
        "webhook.content_type_column=ctype",
        "webhook.retry_limit_column=limt",
        "webhook.retry_wait_ms_column=wait",
    ];
    let set: Vec<&str> = of_webhooks.iter().flat_map(|set| ["--set", *set]).collect();
    let told: Vec<String> = of_webhooks[2..]
        .iter()
        .map(|set| set.split_once('=').unwrap())
        .map(|(key, column)| format!("\"{column}\", which {key} names"))
        .collect();
    refused(&url, &set, &told.iter().map(String::as_str).collect::<Vec<_>>());
}

/// A server and a broker on which everything is as it has to be.
struct Chain {
    server: Postgres,
    url: String,
    broker: MockCluster<'static, DefaultProducerContext>,
}

impl Chain {
    fn new() -> Self {
        let server = server();
        let url = migrated(&server, "shop");
        Self { server, url, broker: MockCluster::new(1).unwrap() }
    }

    fn args(&self, command: &str) -> Vec<String> {
        let brokers = self.broker.bootstrap_servers();
        let patient = "pipeline.wal_sender_timeout_ms=60000";
        let settings = ["--set", "http.listen=", "--set", patient];
        let args = [&[command, "--postgres", &self.url, "--kafka", &brokers], &settings[..]];
        args.concat().into_iter().map(str::to_owned).collect()
    }

    fn run(&self) -> Process {
        let nothing: [(&str, &str); 0] = [];
        Process::start(env!("CARGO_BIN_EXE_walpost"), self.args("run"), nothing)
    }

    fn check(&self) -> String {
        let args = self.args("check");
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = walpost(&args, &[]);
        assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
        stdout(&output)
    }

    fn active_slots(&self) -> String {
        let count = "select count(*) from pg_replication_slots where active";
        self.server.psql("shop", count).unwrap().trim().to_owned()
    }
}

#[tokio::test]
async fn a_slot_in_use_is_a_warning_and_a_second_relay_stands_by() {
    let chain = Chain::new();
    assert!(chain.check().contains("\"walpost_main\" will be created"));
    let first = chain.run();
    first.wait_for_log("streaming", LIMIT);
    let text = chain.check();
    assert!(text.contains("in use by process") && text.contains("stands by"), "{text}");
    let second = chain.run();
    second.wait_for_log("standing by", LIMIT);
    assert!(first.terminate(LIMIT).success());
    second.wait_for_log("this one has taken over", LIMIT);
    second.wait_for_log("streaming", LIMIT);
    for said in ["standing by", "has taken over"] {
        assert_eq!(second.log().matches(said).count(), 1, "{}", second.log());
    }
    assert!(second.terminate(LIMIT).success());
    until(LIMIT, "a slot that is left", async || chain.active_slots() == "0").await;
}

#[tokio::test]
async fn a_log_that_nobody_reads_ends_no_relay() {
    let chain = Chain::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut relay = std::process::Command::new(env!("CARGO_BIN_EXE_walpost"))
        .args(chain.args("run"))
        .stderr(writer)
        .spawn()
        .unwrap();
    until(LIMIT, "a relay that streams", async || {
        assert_eq!(relay.try_wait().unwrap(), None);
        chain.active_slots() == "1"
    })
    .await;
    send_signal(relay.id(), Signal::Terminate).unwrap();
    assert!(relay.wait().unwrap().success());
}
