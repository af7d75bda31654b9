//! Files of Debezium connectors, as they are, from outside.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use walpost_testkit::{Process, create_topic, kafka, read_all, unique_name, until};

use crate::{
    cli::{stderr, stdout, walpost},
    mistakes::{migrated, server},
};

const LIMIT: Duration = Duration::from_secs(60);

fn example(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../connectors").join(file)
}

/// The rows of the table of verdicts: property and verdict.
fn verdicts(text: &str) -> Vec<(String, String)> {
    let titles = text.lines().next().unwrap();
    let place = titles.find("verdict").unwrap();
    let rows = text.lines().skip(1).take_while(|line| !line.contains(" honoured, "));
    let row = |line: &str| {
        let word = |text: &str| text.split_whitespace().next().unwrap().to_owned();
        let rest: String = line.chars().skip(place).collect();
        (word(line), word(&rest))
    };
    rows.map(row).collect()
}

/// What is refused of an example, and how many there are of each verdict.
fn judged(file: &str, more: &[&str]) -> (Vec<String>, String) {
    let path = example(file).display().to_string();
    let output = walpost(&[&["check", &path], more].concat(), &[("WAREHOUSE_PASSWORD", "s3cret")]);
    let text = stdout(&output);
    assert!(!text.contains("s3cret"), "{text}");
    assert_eq!(output.status.code(), Some(2), "there is no broker, at least: {text}");
    let rows = verdicts(&text);
    let counts = text.lines().find(|line| line.contains(" honoured, ")).unwrap();
    for verdict in ["honoured", "mapped", "ignored", "refused"] {
        let count = rows.iter().filter(|(_, of)| of == verdict).count();
        assert!(counts.contains(&format!("{count} {verdict}")), "{text}");
    }
    let refused = rows.into_iter().filter(|(_, verdict)| verdict == "refused");
    let refused: Vec<String> = refused.map(|(property, _)| property).collect();
    let error = stderr(&output);
    match refused.is_empty() {
        true => assert!(error.contains("kafka.bootstrap.servers is missing"), "{error}"),
        false => assert!(error.contains(": refused because "), "{error}"),
    }
    (refused, counts.to_owned())
}

#[test]
fn check_has_a_verdict_on_every_property_of_every_example() {
    let none: &[&str] = &[];
    let worker = example("worker.properties").display().to_string();
    let of_worker: &[&str] = &["--worker", &worker];
    let jaas: &[&str] = &["producer.sasl.jaas.config"];
    // What some of them name is in files that are not here.
    let cases = [
        ("orders.json", none, none, "24 honoured, 1 mapped, 1 ignored, 0 refused"),
        ("transforms.json", none, none, "33 honoured, 1 mapped, 0 ignored, 0 refused"),
        (
            "quarkus.json",
            &["--allow-env", "WAREHOUSE_.*"],
            none,
            "20 honoured, 1 mapped, 3 ignored, 0 refused",
        ),
        (
            "quarkus.json",
            none,
            &["database.password"],
            "19 honoured, 1 mapped, 3 ignored, 1 refused",
        ),
        (
            "returns.properties",
            of_worker,
            &["database.password", "producer.sasl.jaas.config"],
            "25 honoured, 5 mapped, 2 ignored, 2 refused",
        ),
        ("bytes.json", none, none, "22 honoured, 1 mapped, 0 ignored, 0 refused"),
        (
            "custom-columns.json",
            none,
            &["database.password"],
            "33 honoured, 3 mapped, 0 ignored, 1 refused",
        ),
        ("json-with-schemas.json", none, none, "32 honoured, 1 mapped, 0 ignored, 0 refused"),
        ("messages.json", none, none, "19 honoured, 1 mapped, 0 ignored, 0 refused"),
        ("snapshot.json", none, none, "20 honoured, 1 mapped, 0 ignored, 0 refused"),
        ("avro.json", none, &["database.password"], "22 honoured, 2 mapped, 0 ignored, 1 refused"),
        ("debezium-binary.json", of_worker, jaas, "27 honoured, 2 mapped, 4 ignored, 1 refused"),
        ("debezium-expanded.json", of_worker, jaas, "27 honoured, 2 mapped, 4 ignored, 1 refused"),
        ("debezium-outbox.json", of_worker, jaas, "29 honoured, 2 mapped, 4 ignored, 1 refused"),
        ("debezium-saga.json", of_worker, jaas, "26 honoured, 2 mapped, 8 ignored, 1 refused"),
        ("debezium-selective.json", of_worker, jaas, "29 honoured, 2 mapped, 2 ignored, 1 refused"),
    ];
    for (file, more, refused, counts) in cases {
        let (found, told) = judged(file, more);
        assert_eq!(
            (&found[..], &*told),
            (&refused.iter().map(ToString::to_string).collect::<Vec<_>>()[..], counts),
            "{file}"
        );
    }
    for entry in fs::read_dir(example("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let judged = cases.iter().any(|(file, ..)| *file == name) || name == "worker.properties";
        assert!(judged, "{name} is not judged here");
    }
}

#[test]
fn check_tells_the_verdicts_in_json_too() {
    let path = example("quarkus.json").display().to_string();
    let output = walpost(&["check", "--json", "--connector", &path], &[]);
    assert_eq!(output.status.code(), Some(2));
    let told: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&told["ok"], &told["connector"]["refused"]), (&false.into(), &1.into()));
    let properties = told["connector"]["properties"].as_array().unwrap();
    let of = |name: &str| properties.iter().find(|row| row["property"] == name).unwrap();
    assert_eq!(of("database.password")["verdict"], "refused");
    assert_eq!(of("database.password")["line"], 11);
    assert_eq!(of("database.dbname")["value"], "warehouse");
    assert!(of("database.password")["note"].as_str().unwrap().contains("--allow-env"));
}

#[test]
fn what_is_effective_names_the_properties_of_the_connector() {
    let path = example("orders.json").display().to_string();
    let text = stdout(&walpost(&["config", "--effective", &path], &[]));
    let of = |key: &str| text.lines().find(|line| line.starts_with(&format!("{key} = "))).unwrap();
    assert!(of("slot").ends_with("orders.json line 14 (slot.name)"), "{text}");
    assert!(of("url").starts_with("url = \"***\""), "{text}");
    let shown = walpost(&["config", &path], &[]);
    assert_eq!(shown.status.code(), Some(2), "without --effective there is nothing of it");
}

#[test]
fn a_misspelt_property_ends_every_command_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders.json");
    let text = fs::read_to_string(example("orders.json")).unwrap();
    fs::write(&path, text.replace("slot.name", "slot.nmae")).unwrap();
    let path = path.display().to_string();
    let offsets = ["take-over", "from-debezium", "--offsets-file", "x"];
    for command in [&["run"][..], &["status"], &["parked", "list"], &["slot", "recover"], &offsets]
    {
        let output = walpost(&[command, &["--connector", &path]].concat(), &[]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("orders.json line 14: slot.nmae = orders: refused"), "{text}");
        assert!(text.contains("did you mean slot.name?"), "{text}");
    }
}

/// `connectors/orders.json` with another port and database.
fn orders(folder: &Path, port: u16, more: &[(&str, &str)]) -> PathBuf {
    let mut text = fs::read_to_string(example("orders.json")).unwrap();
    let port = format!("\"database.port\": \"{port}\"");
    let changes = [
        ("\"database.port\": \"5432\"", port.as_str()),
        ("\"database.dbname\": \"postgres\"", "\"database.dbname\": \"shop\""),
    ];
    for (from, to) in changes.iter().chain(more) {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let path = folder.join("orders.json");
    fs::write(&path, text).unwrap();
    path
}

#[tokio::test]
async fn run_publishes_what_a_connector_would_with_its_file_as_it_is() {
    let server = server();
    migrated(&server, "shop");
    let folder = tempfile::tempdir().unwrap();
    let path = orders(folder.path(), server.port(), &[]).display().to_string();
    let worker = folder.path().join("worker.properties");
    let brokers = kafka().bootstrap();
    fs::write(&worker, format!("bootstrap.servers={brokers}\n")).unwrap();
    let worker = worker.display().to_string();
    let kind = unique_name("order");
    let topic = format!("outbox.event.{kind}");
    create_topic(brokers, &topic, 1, &[]).await;

    // Rows that are there already are nobody's business under no_data.
    let insert = |id: u32, payload: &str| {
        let sql = format!(
            "insert into walpost.outbox (id, aggregatetype, aggregateid, type, payload) values \
             ('00000000-0000-4000-8000-{id:012}', '{kind}', 'key-1', 'Paid', '{payload}')"
        );
        server.psql("shop", &sql).unwrap();
    };
    insert(1, "{\"early\": 1}");
    let none: [(&str, &str); 1] = [("WALPOST_HTTP_LISTEN", "")];
    let args = ["run", &path, "--worker", &worker];
    let relay = Process::start(env!("CARGO_BIN_EXE_walpost"), args, none);
    relay.wait_for_log("streaming", LIMIT);
    relay.wait_for_log("tasks.max = 1: ignored because", LIMIT);
    insert(2, "{\"late\": 2}");
    until(LIMIT, "the record", async || !read_all(brokers, &topic).await.is_empty()).await;
    let status = stdout(&walpost(&["status", "--connector", &path, "--worker", &worker], &[]));
    assert!(status.contains("orders"), "{status}");
    assert!(relay.terminate(LIMIT).success(), "{}", relay.log());

    let records = read_all(brokers, &topic).await;
    assert_eq!(records.len(), 1, "{records:?}");
    let record = &records[0];
    assert_eq!(record.key_text(), "key-1");
    assert_eq!(record.value_text(), "{\"late\": 2}");
    let names: Vec<&str> = record.headers.iter().map(|(name, _)| name.as_str()).collect();
    // Debezium's, in its order; behind them our own.
    assert_eq!(
        names,
        [
            "__debezium.context.connectorLogicalName",
            "__debezium.context.taskId",
            "__debezium.context.connectorName",
            "__debezium.context.runId",
            "id",
            "eventType",
            "walpost-position",
            "walpost-source",
        ]
    );
    assert_eq!(record.header_text("__debezium.context.connectorLogicalName"), Some("orders"));
    assert_eq!(record.header_text("walpost-source").map(str::len), Some(36), "an id space");
    assert_eq!(record.header_text("eventType"), Some("Paid"));
}

#[tokio::test]
async fn filters_that_no_table_passes_are_told_before_anything_is_read() {
    let server = server();
    migrated(&server, "shop");
    let folder = tempfile::tempdir().unwrap();
    let change = [("walpost.outbox", "walpost.no_outbox")];
    let path = orders(folder.path(), server.port(), &change).display().to_string();
    let args = ["run", &path, "--kafka", "127.0.0.1:1"];
    let output = walpost(&args, &[]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("no table passes table.include.list = walpost.no_outbox"), "{text}");
    assert!(text.contains("did you mean walpost.outbox?"), "{text}");
    let text = stdout(&walpost(&["check", &path, "--kafka", "127.0.0.1:1"], &[]));
    assert!(text.contains("FAIL  PostgreSQL  tables"), "{text}");
    let slots = server.psql("shop", "select count(*) from pg_replication_slots").unwrap();
    assert_eq!(slots.trim(), "0");
}
