use serde_json::{Value, json};
use walpost_testkit::{create_topic, kafka, until};

use super::support::{LIMIT, Stage};
use crate::mistakes::migrated;

#[tokio::test]
#[ignore = "deep: takes a minute"]
async fn a_connector_created_over_http_publishes_until_it_is_deleted() {
    let stage = Stage::set().await;
    let served = stage.serve(&[]).until_health(200).await;
    let (code, info) = served.create("orders", &stage.config("orders")).await;
    assert_eq!((code, &info["config"]["database.password"]), (201, &json!("***")), "{info}");
    let status = served.until("orders", "RUNNING").await;
    assert_eq!(status["connector"]["worker_id"], format!("127.0.0.1:{}", served.rest));
    stage.insert(1);
    stage.until_published(&[1]).await;

    // What it has stored, and what is said of it beside the interface.
    until(LIMIT, "the topic in the checkpoint", async || {
        let (code, topics) = served.ask("GET", "/connectors/orders/topics", None).await;
        code == 200 && topics["orders"]["topics"] == json!([stage.topic])
    })
    .await;
    let (_, offsets) = served.ask("GET", "/connectors/orders/offsets", None).await;
    assert_eq!(offsets["offsets"][0]["partition"], json!({ "server": "shop" }));
    assert!(offsets["offsets"][0]["offset"]["lsn"].as_i64().unwrap() > 0, "{offsets}");
    assert_eq!(served.probe("/live").await, (200, "live\n".to_owned()));
    let (code, ready) = served.probe("/ready").await;
    let ready: Value = serde_json::from_str(&ready).unwrap();
    assert_eq!((code, &ready["role"]), (200, &json!("leads")));
    assert_eq!(ready["connectors"]["orders"]["phase"], "streaming");
    assert_eq!(served.probe("/ready/orders").await.0, 200);
    assert_eq!(served.probe("/ready/others").await.0, 404);
    let metrics = served.probe("/metrics").await.1;
    assert!(metrics.contains("walpost_connect_connectors{state=\"RUNNING\"} 1"), "{metrics}");
    let published = "walpost_relay_published_total{pipeline=\"orders\"} 1";
    until(LIMIT, published, async || served.probe("/metrics").await.1.contains(published)).await;
    assert!(
        served.process.log().contains("connector{name=\"orders\"}"),
        "{}",
        served.process.log()
    );

    // A pause holds events back, a resumption sends them.
    assert_eq!(served.ask("PUT", "/connectors/orders/pause", None).await.0, 202);
    served.until("orders", "PAUSED").await;
    stage.until_left("orders").await;
    stage.insert(2);
    assert_eq!(stage.published().await, [1]);
    assert_eq!(served.ask("PUT", "/connectors/orders/resume", None).await.0, 202);
    stage.until_published(&[1, 2]).await;

    served.until("orders", "RUNNING").await;
    let before = stage.walsender("orders").unwrap();
    let restart = "/connectors/orders/restart?includeTasks=true";
    assert_eq!(served.ask("POST", restart, None).await.0, 202);
    until(LIMIT, "another session", async || {
        stage.walsender("orders").is_some_and(|pid| pid != before)
    })
    .await;
    served.until("orders", "RUNNING").await;
    stage.insert(3);
    stage.until_published(&[1, 2, 3]).await;

    assert_eq!(served.ask("PUT", "/connectors/orders/stop", None).await.0, 204);
    stage.until_left("orders").await;
    assert_eq!(served.ask("DELETE", "/connectors/orders", None).await, (204, Value::Null));
    assert_eq!(served.ask("GET", "/connectors/orders", None).await.0, 404);
    let slots = "select string_agg(slot_name, ' ') from pg_replication_slots";
    assert_eq!(stage.server.psql("postgres", slots).unwrap().trim(), "orders", "it stays");
    // Otherwise an alert would say for ever that nobody publishes it.
    until(LIMIT, "its gauges to leave", async || {
        !served.probe("/metrics").await.1.contains("walpost_relay_streaming{")
    })
    .await;
    assert!(served.process.terminate(LIMIT).success());
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn a_connector_for_its_rows_alone_stays_behind_them() {
    let stage = Stage::set().await;
    let served = stage.serve(&[]).until_health(200).await;
    stage.insert(1);
    stage.insert(2);
    let mut config = stage.config("orders");
    config["snapshot.mode"] = "initial_only".into();
    assert_eq!(served.create("orders", &config).await.0, 201);
    stage.until_published(&[1, 2]).await;
    let has_no_pipeline = async || served.probe("/ready/orders").await.0 == 404;
    let trace = async || served.until("orders", "RUNNING").await["tasks"][0]["trace"].clone();
    for _ in 0..2 {
        until(LIMIT, "the end behind the rows", has_no_pipeline).await;
        assert_eq!(trace().await, Value::Null);
        assert_eq!(served.ask("PUT", "/connectors/orders/pause", None).await.0, 202);
        served.until("orders", "PAUSED").await;
        assert_eq!(served.ask("PUT", "/connectors/orders/resume", None).await.0, 202);
        served.until("orders", "RUNNING").await;
    }
    assert_eq!(stage.published().await, [1, 2]);
    let log = served.process.log();
    assert!(!log.contains("it has ended without being told to"), "{log}");
    assert!(served.process.terminate(LIMIT).success());
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn several_connectors_run_in_one_process_and_end_with_it() {
    let stage = Stage::set().await;
    migrated(&stage.server, "stock");
    let copies = format!("copy.of.{}", stage.topic);
    create_topic(kafka().bootstrap(), &copies, 1, &[]).await;
    // Long enough for all of them to end in order.
    let settings = [
        "pipeline.drain_timeout_ms=60000",
        "pipeline.wal_sender_timeout_ms=60000",
        // Both publish the one table, to topics of their own.
        "pipeline.allow_overlap=true",
    ];
    let served = stage.serve(&settings.map(|setting| ["--set", setting]).concat());
    let served = served.until_health(200).await;
    assert_eq!(served.create("orders", &stage.config("orders")).await.0, 201);
    let mut config = stage.config("orders");
    let (code, error) = served.create("again", &config).await;
    let said = error["message"].as_str().unwrap();
    assert!(code == 400 && said.contains("connector orders has this slot"), "{error}");
    config["slot.name"] = "copies".into();
    config["transforms.outbox.route.topic.replacement"] =
        "copy.of.outbox.event.${routedByValue}".into();
    assert_eq!(served.create("copies", &config).await.0, 201);
    let mut config = stage.config("stock");
    config["database.dbname"] = "stock".into();
    assert_eq!(served.create("stock", &config).await.0, 201);
    for name in ["orders", "copies", "stock"] {
        served.until(name, "RUNNING").await;
    }
    stage.insert(1);
    stage.until_published(&[1]).await;
    until(LIMIT, "the copy", async || {
        walpost_testkit::read_all(kafka().bootstrap(), &copies).await.len() == 1
    })
    .await;
    assert!(served.process.terminate(LIMIT).success(), "{}", served.process.log());
    for slot in ["orders", "copies", "stock"] {
        stage.until_left(slot).await;
    }
    let clean = "select count(*) from walpost.checkpoint where clean";
    assert_eq!(stage.server.psql("shop", clean).unwrap().trim(), "2");
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn a_connector_that_fails_says_why_until_a_restart_finds_it_mended() {
    let stage = Stage::set().await;
    let served = stage.serve(&[]).until_health(200).await;
    let mut config = stage.config("orders");
    config["table.include.list"] = "public.later".into();
    assert_eq!(served.create("orders", &config).await.0, 201);
    let status = served.until("orders", "FAILED").await;
    let trace = status["tasks"][0]["trace"].as_str().unwrap();
    assert!(trace.contains("no table passes"), "{status}");
    assert!(trace.contains("; next step: write the outbox"), "{status}");
    let metrics = served.probe("/metrics").await.1;
    assert!(metrics.contains("walpost_connect_connectors{state=\"FAILED\"} 1"), "{metrics}");
    assert_eq!(served.probe("/ready").await.0, 200, "others may need the process");

    let mend = "create table public.later (like walpost.outbox including all); alter publication \
                walpost add table public.later";
    stage.server.psql("shop", mend).unwrap();
    let restart = "/connectors/orders/restart?includeTasks=true&onlyFailed=true";
    let (code, status) = served.ask("POST", restart, None).await;
    assert_eq!((code, &status["tasks"][0]["state"]), (202, &json!("RESTARTING")));
    served.until("orders", "RUNNING").await;
    assert!(served.process.terminate(LIMIT).success());
}

#[tokio::test]
async fn a_configuration_that_is_none_is_answered_as_kafka_connect_does() {
    let stage = Stage::set().await;
    let served = stage.serve(&[]).until_health(200).await;
    for (property, value, said) in [
        ("slot.name", "No Slot", "slot.name: "),
        ("transforms.outbox.route.topic.regex", "(", "route.topic.regex"),
        ("slot.drop.on.stop", "true", "slot.drop.on.stop: "),
        ("snapshot.mode", "always", "snapshot.mode: "),
    ] {
        let mut config = stage.config("orders");
        config[property] = value.into();
        let (code, error) = served.create("orders", &config).await;
        assert_eq!((code, &error["error_code"]), (400, &json!(400)), "{property}: {error}");
        let message = error["message"].as_str().unwrap();
        let first = "Connector configuration is invalid and contains the following 1 error(s):\n";
        assert!(message.starts_with(first), "{message}");
        assert!(message.contains(said), "{message}");
        let path = "/connector-plugins/PostgresConnector/config/validate";
        config["name"] = "orders".into();
        let (code, answer) = served.ask("PUT", path, Some(&config)).await;
        assert_eq!((code, &answer["error_count"]), (200, &json!(1)), "{property}: {answer}");
    }
    // More than a connection buffers.
    let mut config = stage.config("orders");
    config["table.include.list"] = "walpost.outbox,".repeat(10_000).into();
    config["no.such.property"] = "x".into();
    let (code, error) = served.create("orders", &config).await;
    assert_eq!(code, 400);
    assert!(error["message"].as_str().unwrap().contains("no.such.property"), "{error}");
    assert_eq!(served.ask("GET", "/connectors", None).await, (200, json!([])));
    assert!(served.process.terminate(LIMIT).success());
}
