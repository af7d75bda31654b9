//! `walpost run` by the files that an operator copies, until no attempt is left.

use std::{
    fs,
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
};

use axum::{Router, extract::State, routing::post};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use walpost_testkit::{Process, until};
use walpost_tests::walpost_binary;

use crate::stage::{LIMIT, Side, Stage, WAL_INLINE, blocking};

const KEY: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
/// Of the one invoice.
const EVENT: &str = "invoice.paid:1:700001";
const ROW: &str = "select concat_ws(' ', delivery_status, delivery_attempts, \
    last_attempt_at is not null, delivered_at is not null) from finance_outbox";

type Bodies = Arc<Mutex<Vec<String>>>;

/// A channel of Slack: where it is, and what it got.
async fn slack() -> (String, Bodies) {
    let bodies = Bodies::default();
    let take = async |State(bodies): State<Bodies>, body: String| {
        bodies.lock().unwrap().push(body);
        "ok"
    };
    let router = Router::new().route("/services/finance", post(take)).with_state(bodies.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/services/finance", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, router).into_future());
    (url, bodies)
}

/// The file as it is, but for addresses, the secret and the waits, of which there
/// remain seven.
fn arguments(stage: &Stage, file: &str, folder: &Path, slack: &str) -> Vec<String> {
    let key = folder.join("key");
    fs::write(&key, KEY).unwrap();
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let sets = [
        format!("postgres.url={}", stage.url(Side::Finance)),
        format!("destination.logistics.url=http://{}/webhooks/finance", stage.proxy.address()),
        format!("destination.logistics.signing_key_files={}", key.display()),
        format!("destination.operators.url={slack}"),
        "destination.allow_http=true".to_owned(),
        "destination.allow_private_networks=true".to_owned(),
        "destination.retry_waits=20ms".to_owned(),
        // Of rows of 30 days; there are none.
        "retention.enabled=false".to_owned(),
        "http.listen=".to_owned(),
    ];
    let sets = sets.into_iter().flat_map(|set| ["--set".to_owned(), set]);
    ["--config".to_owned(), config.display().to_string()].into_iter().chain(sets).collect()
}

async fn row(stage: &Stage) -> String {
    let rows = stage.look(Side::Finance, ROW).await;
    rows.map_or_else(String::new, |rows| rows[0].get(0))
}

async fn failed_and_brought_home(file: &str) {
    let mut stage = Stage::open(WAL_INLINE).await;
    stage.pay(1).await;
    let (folder, (url, bodies)) = (TempDir::new().unwrap(), slack().await);
    let arguments = arguments(&stage, file, folder.path(), &url);
    let binary = blocking(walpost_binary).await;
    let none: [(&str, &str); 0] = [];
    let words = ["run"].into_iter().chain(arguments.iter().map(String::as_str));
    let running = Process::start(&binary, words, none);
    until(LIMIT, "the end of all attempts", async || {
        assert!(running.is_running(), "{}", running.log());
        row(&stage).await == "failed 8 t f"
    })
    .await;
    until(LIMIT, "an alert", async || bodies.lock().unwrap().len() == 1).await;

    stage.start(Side::Logistics, 0, None);
    // Attempts in vain would be told as well.
    let logistics = ([127, 0, 0, 1], stage.port()).into();
    until(LIMIT, "an answer of logistics", async || {
        stand::post(logistics, "/webhooks/finance", &[], b"unsigned").await.is_some()
    })
    .await;
    let failed = "select id from walpost.webhook_delivery where state = 'failed'";
    let id = stage.number(Side::Finance, failed).await.to_string();
    let retried = blocking(move || {
        let words = ["webhook", "retry", &id].into_iter().map(str::to_owned);
        Command::new(binary).args(words.chain(arguments)).output().unwrap()
    })
    .await;
    assert!(retried.status.success(), "{retried:?}");
    stage.all_is_done_once(1).await;
    assert!(row(&stage).await.starts_with("delivered "), "{}", row(&stage).await);
    let known = stage.look(Side::Logistics, "select event_id from walpost.inbox").await.unwrap();
    assert_eq!(known.iter().map(|row| row.get(0)).collect::<Vec<String>>(), [EVENT]);
    let keys = "select count(*) from walpost.webhook_delivery where destination = 'logistics' \
                and idempotency_key = 'invoice.paid:1:700001'";
    assert_eq!(stage.number(Side::Finance, keys).await, 1);
    let ended = blocking(move || (running.terminate(LIMIT), running.log())).await;
    assert!(ended.0.success(), "{}", ended.1);
    stage.end().await;
    // One, and none about what went well afterwards.
    let bodies = bodies.lock().unwrap();
    let [alert] = &bodies[..] else { panic!("one alert, and not {bodies:?}") };
    let alert: Value = serde_json::from_str(alert).unwrap();
    assert_eq!(alert.as_object().unwrap().keys().collect::<Vec<_>>(), ["text"]);
    let text = alert["text"].as_str().unwrap();
    assert!(text.contains("logistics has failed after 8 attempts"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_eight_attempts_from_the_wal_slack_is_told_once_and_a_retry_ships() {
    failed_and_brought_home("../finance-outbox/webhook.toml").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_eight_attempts_of_a_polled_row_slack_is_told_once_and_a_retry_ships() {
    failed_and_brought_home("polling.toml").await;
}
