use walpost_connector::{
    AutoCreate, ContextHeaders, InitialState, LsnFlushMode, OffsetMismatch, Properties,
    SnapshotMode, Unknown, Verdict, judge,
};

use super::{judged, laid, refused, row, settings, text, verdict, with};

#[test]
fn a_misspelt_property_is_refused_with_the_nearest_name_or_told() {
    refused(&[("table.inclde.list", "x")], "table.inclde.list", "did you mean table.include.list?");
    let option = "transforms.outbox.route.topic.replacment";
    refused(&[(option, "x")], option, "did you mean transforms.outbox.route.topic.replacement?");
    refused(&[("wholly.unknown", "x")], "wholly.unknown", "correct its name or remove it");
    let judgement = judge(&with(&[("table.inclde.list", "x")]), None, Unknown::Warn);
    let row = row(&judgement, "table.inclde.list");
    assert_eq!(row.verdict, Verdict::Ignored);
    assert!(row.note.contains("did you mean table.include.list?"), "{row}");
    assert!(judgement.connector.is_some());
}

#[test]
fn a_secret_under_a_misspelt_name_does_not_show() {
    for name in [
        "database.pasword",
        "database.passwrd",
        "database.passwd",
        "heartbeat.action.qery",
        "database.intial.statements",
        "producer.override.sasl.jas.config",
    ] {
        for unknown in [Unknown::Refuse, Unknown::Warn] {
            let judgement = judge(&with(&[(name, "hunter2")]), None, unknown);
            assert!(!row(&judgement, name).to_string().contains("hunter2"), "{name}");
        }
    }
    let judgement = judged(&[("database.pasword", "${env:PASSWORD}"), ("slot.nmae", "shop")]);
    assert_eq!(row(&judgement, "database.pasword").value.as_deref(), Some("${env:PASSWORD}"));
    assert_eq!(row(&judgement, "slot.nmae").value.as_deref(), Some("shop"));
    let name = "value.converter.schema.registry.url";
    let judgement = judged(&[(name, "u:hunter2@registry:8081")]);
    assert_eq!(row(&judgement, name).value.as_deref(), Some("***"));
}

#[test]
fn what_is_missing_is_told_by_its_name() {
    for name in [
        "name",
        "connector.class",
        "topic.prefix",
        "database.hostname",
        "database.user",
        "database.dbname",
        "key.converter",
        "value.converter",
        "transforms.outbox.type",
    ] {
        let without = with(&[]);
        let without = without.iter().filter(|property| property.name != name);
        let properties = Properties::from_pairs(without.map(|p| (p.name.clone(), p.value.clone())));
        let judgement = judge(&properties, None, Unknown::Refuse);
        let row = row(&judgement, name);
        assert_eq!((row.verdict, row.value.as_deref()), (Verdict::Refused, None), "{row}");
        assert!(row.note.starts_with("it is missing; write "), "{row}");
        refused(&[(name, " ")], name, "");
    }
}

#[test]
fn an_error_names_the_first_property_and_how_many_there_are() {
    let judgement = judged(&[("slot.name", "Slot"), ("database.port", "x")]);
    let error = judgement.into_connector().unwrap_err();
    assert_eq!(error.count(), 2);
    let text = error.to_string();
    assert!(
        text.starts_with(
            "2 of the connector's properties cannot be used; the first one: slot.name"
        )
    );
    assert!(text.contains("it is \"Slot\"; write 1 to 63 of a-z, 0-9 and _"), "{text}");
}

#[test]
fn json_with_a_comment_above_it_is_not_taken_for_properties() {
    for text in ["// mine\n{\"name\": \"x\"}", "/* mine */ {}"] {
        let error = Properties::read(text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("JSON has no comments"), "{error}");
    }
}

#[test]
fn two_lists_of_tables_are_one_mistake() {
    let both = [("table.include.list", "public.outbox"), ("table.exclude.list", "public.other")];
    let error = judged(&both).into_connector().unwrap_err();
    assert_eq!(error.count(), 1, "{error}");
}

/// Properties, the one that is refused, and what is said of it.
type Case = (&'static [(&'static str, &'static str)], &'static str, &'static str);

const CONTRADICTIONS: &[Case] = &[
    (
        &[("table.include.list", "a"), ("table.exclude.list", "b")],
        "table.exclude.list",
        "table.include.list is given too",
    ),
    (
        &[("schema.include.list", "a"), ("schema.exclude.list", "b")],
        "schema.exclude.list",
        "remove one",
    ),
    (
        &[("column.include.list", "a"), ("column.exclude.list", "b")],
        "column.exclude.list",
        "remove one",
    ),
    (
        &[("message.prefix.include.list", "a"), ("message.prefix.exclude.list", "b")],
        "message.prefix.exclude.list",
        "remove one",
    ),
    (
        &[("flush.lsn.source", "false"), ("lsn.flush.mode", "connector")],
        "flush.lsn.source",
        "says otherwise",
    ),
    (
        &[
            ("internal.slot.seek.to.known.offset.on.start", "true"),
            ("offset.mismatch.strategy", "trust_slot"),
        ],
        "internal.slot.seek.to.known.offset.on.start",
        "says otherwise",
    ),
    (&[("skipped.operations", "none,t")], "skipped.operations", "none alone"),
    (&[("skipped.operations", "c,x")], "skipped.operations", "an operation that there is not"),
    (&[("max.queue.size", "2048")], "max.queue.size", "is not larger than a batch"),
    (&[("max.batch.size", "9000")], "max.batch.size", "is not larger than a batch"),
    (
        &[("snapshot.select.statement.overrides.a.b", "select 1")],
        "snapshot.select.statement.overrides.a.b",
        "does not name a.b",
    ),
    (
        &[("snapshot.select.statement.overrides", "a.b")],
        "snapshot.select.statement.overrides",
        "snapshot.select.statement.overrides.a.b is missing",
    ),
    (
        &[
            ("database.sslfactory", "org.postgresql.ssl.NonValidatingFactory"),
            ("database.sslmode", "verify-ca"),
        ],
        "database.sslfactory",
        "one of the two",
    ),
    (&[("database.sslcert", "/c")], "database.sslcert", "database.sslkey is missing"),
    (&[("database.sslcert", "/c"), ("database.sslkey", "/k.p12")], "database.sslkey", "PKCS #12"),
    (&[("slot.stream.params", "origin=x")], "slot.stream.params", "neither none nor any"),
    (&[("slot.stream.params", "origin")], "slot.stream.params", "has no ="),
    (&[("transaction.boundary", "connector")], "transaction.boundary", "poll or interval"),
    (&[("walpost.debezium.version", "new")], "walpost.debezium.version", "one such as 3.4"),
    (&[("converters", "isbn")], "converters", "Java classes"),
    (&[("provide.transaction.metadata", "true")], "provide.transaction.metadata", "write false"),
    (&[("plugin.name", "wal2json")], "plugin.name", "write pgoutput"),
    (
        &[("connector.class", "io.debezium.connector.mysql.MySqlConnector")],
        "connector.class",
        "io.debezium.connector.postgresql.PostgresConnector",
    ),
    (
        &[("column.mask.with.10.chars", "a.b.c")],
        "column.mask.with.10.chars",
        "Walpost changes no data",
    ),
];

#[test]
fn settings_that_say_two_things_or_nothing_are_refused() {
    for (more, property, says) in CONTRADICTIONS {
        refused(more, property, says);
    }
}

#[test]
fn former_names_and_values_that_are_still_meant_are_read() {
    let connector = settings(&[("flush.lsn.source", "FALSE"), ("snapshot.mode", " never ")]);
    assert_eq!(connector.progress.flush, LsnFlushMode::Manual);
    assert_eq!(connector.snapshot.mode, SnapshotMode::NoData);
    let connector =
        settings(&[("slot.seek.to.known.offset.on.start", "true"), ("snapshot.mode", "exported")]);
    assert_eq!(connector.progress.mismatch, OffsetMismatch::TrustOffset);
    assert_eq!(connector.snapshot.mode, SnapshotMode::Initial);
    refused(&[("table.whitelist", "x")], "table.whitelist", "write table.include.list");
}

#[test]
fn a_removed_name_beside_its_new_one_is_ignored() {
    let (found, note) = verdict(&[("database.server.name", "x")]);
    let expected = "Debezium removed it, and topic.prefix is set; remove it";
    assert_eq!((found, &*note), (Verdict::Ignored, expected));
    let both = [("table.whitelist", "x"), ("table.include.list", "public.outbox")];
    assert_eq!(settings(&both).topic_prefix, settings(&[]).topic_prefix);
}

#[test]
fn defaults_are_those_of_debezium_and_the_dangerous_ones_are_told() {
    let properties = with(&[("table.include.list", "public.outbox")]);
    let left_out = ["snapshot.mode", "plugin.name", "publication.autocreate.mode"];
    let rest = properties.iter().filter(|property| !left_out.contains(&&*property.name));
    let properties = Properties::from_pairs(rest.map(|p| (p.name.clone(), p.value.clone())));
    let judgement = judge(&properties, None, Unknown::Refuse);
    for name in left_out {
        let row = row(&judgement, name);
        assert_eq!((row.verdict, row.value.as_deref()), (Verdict::Honoured, None), "{row}");
        assert!(judgement.verdicts.warnings().any(|warning| *warning == row));
    }
    let connector = judgement.connector.unwrap();
    assert_eq!(connector.snapshot.mode, SnapshotMode::Initial);
    assert_eq!(connector.publication.autocreate, AutoCreate::AllTables);
    assert_eq!(text(&connector, "pipeline.publication"), "dbz_publication");
    assert_eq!(text(&connector, "pipeline.slot"), "debezium");
    assert!(text(&connector, "postgres.url").contains(" port='5432' "));
    assert!(!connector.tables.has_no_filter());
    assert!(connector.skipped.truncate && !connector.skipped.update);
    assert_eq!(connector.context_headers, ContextHeaders::Four);
    assert_eq!(connector.heartbeat.interval_ms, None);
    assert_eq!(laid(&connector, "pipeline.in_flight_max_events"), None);
    assert_eq!(connector.topic_creation, None);
    assert!(connector.settings.iter().all(|setting| setting.section != "kafka"));
}

#[test]
fn context_headers_follow_the_version() {
    for (version, enabled, expected) in [
        ("3.1.3.Final", "true", ContextHeaders::None),
        ("2.7", "true", ContextHeaders::None),
        ("3.2", "true", ContextHeaders::Three),
        ("3.3.1.Final", "true", ContextHeaders::Three),
        ("3.4", "TRUE", ContextHeaders::Four),
        ("4.0", "true", ContextHeaders::Four),
        ("3.4", "false", ContextHeaders::None),
    ] {
        let more = [("walpost.debezium.version", version), ("extended.headers.enabled", enabled)];
        assert_eq!(settings(&more).context_headers, expected, "{version}");
    }
}

#[test]
fn tables_are_those_that_debezium_reads() {
    let connector = settings(&[
        ("schema.include.list", "shop, billing"),
        ("table.include.list", r"shop\.out.*, billing\.t{1\,2}"),
    ]);
    for (schema, table, expected) in [
        ("shop", "outbox", true),
        ("SHOP", "Outbox", true),
        ("shop", "my_outbox", false),
        ("shop2", "outbox", false),
        ("billing", "tt", true),
        ("billing", "ttt", false),
        ("pg_catalog", "outbox", false),
    ] {
        assert_eq!(connector.tables.reads(schema, table, "walpost"), expected, "{schema}.{table}");
    }
    let connector = settings(&[("table.exclude.list", "public.other")]);
    assert!(connector.tables.reads("public", "outbox", "walpost"));
    assert!(!connector.tables.reads("public", "other", "walpost"));
    assert!(!connector.tables.reads("information_schema", "tables", "walpost"));
    assert!(!connector.tables.reads("pg_temp_3", "x", "walpost"));
    let connector = settings(&[("table.ignore.builtin", "false")]);
    assert!(connector.tables.reads("pg_catalog", "pg_class", "walpost"));
}

#[test]
fn a_connector_begins_in_the_state_of_its_request() {
    let text = |state: &str| {
        let config: serde_json::Map<String, serde_json::Value> =
            with(&[]).iter().map(|p| (p.name.clone(), p.value.clone().into())).collect();
        serde_json::json!({"name": "orders", "config": config, "initial_state": state}).to_string()
    };
    let properties = Properties::read(text("PAUSED").as_bytes()).unwrap();
    let connector = judge(&properties, None, Unknown::Refuse).connector.unwrap();
    assert_eq!(connector.initial_state, InitialState::Paused);
}

#[test]
fn what_is_refused_has_its_place_in_the_file() {
    let text = "name=a\nslot.name=Slot\n";
    let properties = Properties::read(text.as_bytes()).unwrap();
    let judgement = judge(&properties, None, Unknown::Refuse);
    assert_eq!(row(&judgement, "slot.name").at.map(|at| at.line), Some(2));
    assert_eq!(
        row(&judgement, "slot.name").to_string(),
        "slot.name = Slot: refused because it is \"Slot\"; write 1 to 63 of a-z, 0-9 and _"
    );
}

#[test]
fn what_a_worker_has_beyond_what_is_known_is_told_and_refuses_nothing() {
    let worker = Properties::from_pairs([
        ("confluent.license", "x"),
        ("producer.confluent.monitoring.x", "y"),
        ("offset.flush.interval.ms", "60000"),
    ]);
    let judgement = judge(&with(&[]), Some(&worker), Unknown::Refuse);
    for name in ["confluent.license", "producer.confluent.monitoring.x"] {
        assert_eq!(row(&judgement, name).verdict, Verdict::Ignored, "{name}");
    }
    assert!(judgement.connector.is_some());
}

#[test]
fn messages_are_events_only_where_they_are_decoded() {
    let (found, note) = verdict(&[("message.prefix.include.list", "outbox")]);
    assert_eq!(found, Verdict::Ignored);
    assert!(note.contains("DecodeLogicalDecodingMessageContent before the router"), "{note}");
    let mode = "publication.autocreate.mode";
    refused(&[(mode, "no_tables")], mode, "no transform decodes messages");
    assert!(!settings(&[]).transforms.decodes_messages());
}

#[test]
fn heartbeats_are_those_of_debezium() {
    let heartbeat = |more: &[(&str, &str)]| settings(more).heartbeat;
    let forced = heartbeat(&[("lsn.flush.mode", "connector_and_driver")]);
    assert_eq!(forced.interval_ms, Some(600_000));
    let both = [("lsn.flush.mode", "connector_and_driver"), ("heartbeat.interval.ms", "5")];
    assert_eq!(heartbeat(&both).interval_ms, Some(5));
    let named = [("topic.heartbeat.prefix", "beat"), ("topic.delimiter", "-")];
    assert_eq!(heartbeat(&named).topic, "beat-shop");
    assert_eq!(heartbeat(&[("topic.heartbeat.name", "beats")]).topic, "beats");
    refused(&[("topic.heartbeat.name", "a b")], "topic.heartbeat.name", "it is no topic");
    let (found, note) = verdict(&[("heartbeat.action.query", "select 1")]);
    assert_eq!(found, Verdict::Ignored);
    assert!(note.contains("there are no heartbeats"), "{note}");
}

#[test]
fn without_a_filter_every_table_would_be_an_outbox() {
    for mode in ["all_tables", "filtered"] {
        let mode = ("publication.autocreate.mode", mode);
        refused(&[mode], "table.include.list", "every table of the database would be an outbox");
        for filter in ["table.include.list", "schema.include.list", "table.exclude.list"] {
            assert!(judged(&[mode, (filter, "public.outbox")]).connector.is_some(), "{filter}");
        }
    }
    assert!(settings(&[("publication.autocreate.mode", "disabled")]).tables.has_no_filter());
}

#[test]
fn of_walposts_own_tables_the_outbox_alone_is_one() {
    let tables = settings(&[("table.include.list", ".*")]).tables;
    for (table, expected) in [
        ("outbox", true),
        ("outbox_20260101", true),
        ("outbox_archive", false),
        ("outbox_archive_default", false),
        ("outbox_key", false),
        ("parked", false),
        ("checkpoint", false),
    ] {
        assert_eq!(tables.reads("events", table, "events"), expected, "{table}");
        assert!(tables.reads("public", table, "events"), "{table}");
    }
}

#[test]
fn the_table_of_signals_is_no_outbox_and_known() {
    let tables = settings(&[("signal.data.collection", "public.signals")]).tables;
    assert!(tables.is_signal("public", "signals"));
    assert!(!tables.reads("public", "signals", "walpost"));
    assert!(tables.reads("public", "outbox", "walpost"));
    let (found, note) = verdict(&[("signal.data.collection", "public.signals")]);
    assert_eq!(found, Verdict::Mapped);
    assert!(note.contains("is an error when it comes"), "{note}");
    refused(&[("signal.data.collection", "signals")], "signal.data.collection", "no schema.table");
}

#[test]
fn unknown_names_are_passed_over_only_where_debezium_does() {
    let converter = ("value.converter.schemas.enabled", "false");
    let producer = ("producer.override.compresion.type", "lz4");
    let more = with(&[converter, producer, ("value.converter", super::JSON), ("no.such", "x")]);
    let judgement = judge(&more, None, Unknown::Warn);
    for (name, expected) in [
        (converter.0, Verdict::Refused),
        (producer.0, Verdict::Refused),
        ("no.such", Verdict::Ignored),
    ] {
        assert_eq!(row(&judgement, name).verdict, expected, "{name}");
    }
    let option = "transforms.outbox.no.such";
    let judgement = judge(&with(&[(option, "x")]), None, Unknown::Warn);
    assert_eq!(row(&judgement, option).verdict, Verdict::Ignored);
}

#[test]
fn a_name_that_no_pipeline_has_is_refused() {
    refused(&[("name", &"x".repeat(64))], "name", "write at most 63");
    assert!(judged(&[("name", &"x".repeat(63))]).connector.is_some());
}

#[test]
fn blanks_around_a_value_are_taken_away_as_there() {
    let connector = settings(&[
        ("transforms.outbox.route.topic.regex", " (.*) "),
        ("transforms.outbox.route.topic.replacement", " events.$1 "),
        ("database.password", " p w "),
        ("producer.override.ssl.key.password", " hunter2 "),
    ]);
    assert_eq!(text(&connector, "router.topic_regex"), "(.*)");
    assert_eq!(text(&connector, "router.topic_replacement"), "events.$1");
    assert!(text(&connector, "postgres.url").contains("password=' p w '"));
    assert_eq!(text(&connector, "kafka.ssl.key.password"), "hunter2");
}
