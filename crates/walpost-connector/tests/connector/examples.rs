use std::{fs, path::PathBuf};

use walpost_connector::{
    Action, AutoCreate, Connector, Converter, HeaderConverter, InitialState, Login, Properties,
    Reference, SettingValue, SnapshotMode, SubjectStrategy, Test, Unknown, Verdict, Verdicts,
    judge,
};

use super::{laid, text};

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../connectors"))
}

/// An example with its placeholders replaced by what they ask for.
fn file(name: &str) -> Properties {
    let bytes = fs::read(folder().join(name)).expect("an example");
    let lookup = |asked: Reference<'_>| match asked.key {
        "REGISTRY_LOGIN" => Ok("user:hunter2".to_owned()),
        other => Ok::<_, std::convert::Infallible>(format!("hunter2 of {other}")),
    };
    let properties = Properties::read(&bytes).expect("properties").named();
    properties.resolve(lookup).expect("each placeholder stands for something")
}

#[track_caller]
fn example(name: &str) -> (Connector, Verdicts) {
    let worker = file("worker.properties");
    let names_no_converters = name.ends_with(".properties") || name.starts_with("debezium-");
    let worker = names_no_converters.then_some(&worker);
    match judge(&file(name), worker, Unknown::Refuse).into_connector() {
        Ok(found) => found,
        Err(refused) => panic!("{name}: {refused}"),
    }
}

#[test]
fn every_example_is_a_connector_and_no_secret_of_it_shows() {
    let mut count = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name == "worker.properties" {
            continue;
        }
        let (connector, verdicts) = example(&name);
        let shown = format!("{connector:?} {verdicts:?}");
        assert!(!shown.contains("hunter2"), "{name}: {shown}");
        let rows = verdicts.rows().iter().filter(|row| row.value.is_some()).count();
        let given = file(&name).iter().count();
        assert!(rows >= given, "{name}: each of {given} properties has a row, not {rows}");
        count += 1;
    }
    assert_eq!(count, 15, "an example more or less");
}

#[test]
fn an_outbox_of_quarkus() {
    let (connector, verdicts) = example("quarkus.json");
    assert_eq!(text(&connector, "pipeline.name"), "warehouse");
    assert_eq!(connector.initial_state, InitialState::Running);
    assert_eq!(connector.snapshot.mode, SnapshotMode::NoData);
    assert_eq!(connector.publication.autocreate, AutoCreate::Filtered);
    assert!(connector.tables.reads("public", "OutboxEvent", "walpost"));
    assert!(!connector.tables.reads("public", "outboxevents", "walpost"));
    assert_eq!(text(&connector, "router.event_timestamp"), "timestamp");
    assert_eq!(text(&connector, "router.topic_replacement"), "${routedByValue}.events");
    let password = verdicts.row("database.password").unwrap();
    assert_eq!(password.value.as_deref(), Some("${env:WAREHOUSE_PASSWORD}"));
    let url = text(&connector, "postgres.url");
    assert!(url.contains("password='hunter2 of WAREHOUSE_PASSWORD'"), "{url}");
}

#[test]
fn columns_with_names_of_their_own() {
    let (connector, _) = example("custom-columns.json");
    for (key, expected) in [
        ("router.event_id", "event_id"),
        ("router.event_key", "invoice_number"),
        ("router.event_payload", "body"),
        ("router.route_by_field", "destination"),
        ("router.additional_missing", "ignore"),
        ("pipeline.dead_letter_topic", "billing.dead_letters"),
        ("kafka.compression.type", "zstd"),
        ("kafka.linger.ms", "5"),
    ] {
        assert_eq!(text(&connector, key), expected, "{key}");
    }
    let tombstone = laid(&connector, "router.tombstone_on_empty_payload");
    assert_eq!(tombstone, Some(&SettingValue::Boolean(true)));
    let url = text(&connector, "postgres.url");
    let tls = "sslmode='verify-full' sslrootcert='/etc/walpost/authorities.pem'";
    assert!(url.contains(tls), "{url}");
    let columns =
        |name: &str| connector.tables.columns.passes(&format!("billing.outbox_events.{name}"));
    assert!(columns("body") && !columns("debug_host") && !columns("internal_note"));
    assert!(connector.skipped.update && !connector.skipped.insert);
}

#[test]
fn json_with_its_schema_and_topics_that_are_made() {
    let (connector, _) = example("json-with-schemas.json");
    let Converter::Json(key) = connector.converters.key else { panic!("JSON") };
    let Converter::Json(value) = connector.converters.value else { panic!("JSON") };
    assert!(!key.schemas && value.schemas);
    assert_eq!(connector.converters.header, HeaderConverter::Simple);
    let router = &connector.transforms.router;
    assert!(router.has_envelope && router.expansion.is_some());
    assert_eq!(router.schema_version.as_deref(), Some("version"));
    let topics = connector.topic_creation.unwrap();
    let compacted = topics.group("outbox.event.customer").unwrap();
    assert_eq!((&*compacted.name, compacted.partitions), ("compacted", Some(12)));
    assert_eq!(compacted.config["cleanup.policy"], "compact");
    let default = topics.group("outbox.event.order").unwrap();
    assert_eq!((&*default.name, default.replication), ("default", Some(3)));
    assert_eq!(default.config["compression.type"], "producer");
}

#[test]
fn payloads_of_bytes() {
    let (connector, _) = example("bytes.json");
    let Converter::BinaryData { delegate: Some(delegate) } = &connector.converters.value else {
        panic!("with a delegate")
    };
    assert!(matches!(**delegate, Converter::Json(json) if !json.schemas));
    assert_eq!(connector.heartbeat.interval_ms, Some(10_000));
    assert_eq!(connector.heartbeat.topic, "__debezium-heartbeat.telemetry");
}

#[test]
fn messages_without_a_table() {
    let (connector, _) = example("messages.json");
    assert_eq!(connector.publication.autocreate, AutoCreate::NoTables);
    let prefixes = &connector.messages.prefixes;
    assert!(prefixes.passes("outbox") && prefixes.passes("outbox-eu") && !prefixes.passes("x"));
    let before = &connector.transforms.before;
    assert!(matches!(before[0].action, Action::DecodeMessages { keeps_null: false }));
}

#[test]
fn rows_that_are_there_already() {
    let (connector, _) = example("snapshot.json");
    assert_eq!(connector.snapshot.mode, SnapshotMode::Initial);
    assert_eq!(connector.publication.via_partition_root, Some(true));
    let [only] = connector.snapshot.overrides.as_slice() else { panic!("one override") };
    assert_eq!(only.table, "public.outbox");
    assert!(only.statement.expose().starts_with("select * from public.outbox where"));
    let tables = connector.snapshot.tables.unwrap();
    assert!(tables[0].matches("PUBLIC.outbox") && !tables[0].matches("public.outbox_archive"));
}

#[test]
fn transforms_behind_the_router() {
    let (connector, _) = example("transforms.json");
    let after = &connector.transforms.after;
    let aliases: Vec<&str> = after.iter().map(|step| step.alias.as_str()).collect();
    assert_eq!(aliases, ["environment", "internal", "forget", "rename"]);
    let Action::InsertHeader { name, literal } = &after[0].action else { panic!("a header") };
    assert_eq!((&**name, &**literal), ("environment", "production"));
    let Action::DropHeaders(names) = &after[1].action else { panic!("headers that go") };
    assert_eq!(names[1], "__debezium.context.runId");
    let forget = after[2].condition.as_ref().unwrap();
    assert!(matches!(&forget.test, Test::TopicMatches(pattern) if pattern.matches("a.scratch")));
    let Action::RenameTopic(rename) = &after[3].action else { panic!("another topic") };
    assert_eq!(rename.apply("outbox.event.parcel").as_deref(), Ok("shipping.parcel.v1"));
    assert_eq!(after[3].condition.as_ref().unwrap().test, Test::HasHeader("eventType".into()));
}

#[test]
fn values_under_a_schema_of_a_registry() {
    let (connector, _) = example("avro.json");
    let Converter::Avro(avro) = &connector.converters.value else { panic!("Avro") };
    let registry = &avro.registry;
    assert_eq!(registry.urls[0].expose(), "https://registry:8081");
    assert!(matches!(&registry.login, Login::Basic { user, .. } if user == "user"));
    assert_eq!(registry.subject, SubjectStrategy::TopicRecordName);
    assert!(!registry.auto_register);
}

#[test]
fn properties_beside_those_of_a_worker() {
    let (connector, verdicts) = example("returns.properties");
    assert!(connector.tables.reads("public", "outbox", "walpost"));
    assert!(matches!(connector.converters.value, Converter::Json(json) if !json.schemas));
    for (key, expected) in [
        ("router.additional_missing", "ignore"),
        ("router.additional_placement", "type:header:eventType,tenant:header"),
        ("kafka.bootstrap.servers", "kafka-1:9093,kafka-2:9093"),
        ("kafka.sasl.username", "connect"),
        ("kafka.sasl.password", "hunter2 of password"),
        ("kafka.ssl.ca.location", "/etc/walpost/authorities.pem"),
    ] {
        assert_eq!(text(&connector, key), expected, "{key}");
    }
    assert_eq!(connector.offsets.file, Some(PathBuf::from("/var/lib/connect/offsets")));
    assert_eq!(verdicts.row("plugin.path").unwrap().verdict, Verdict::Ignored);
}
