//! `examples/camel-case-outbox` as webhooks: path and body stand in one column.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
};
use tempfile::TempDir;
use tokio::net::TcpListener;
use walpost_migrate::{Migrator, Set};
use walpost_testkit::{Process, fresh_database, unique_name, until};
use walpost_tests::{LIMIT, walpost_binary};

/// Path, key, authorization and body of a request.
type Request = (String, String, String, String);
type Requests = Arc<Mutex<Vec<Request>>>;

/// As an application inserts them, which knows no other columns.
const INSERT: &str = "insert into \"outbox\" (\"destination\", \"retryLimit\", \
    \"retryWaitPeriodMs\", \"payload\") values \
    ('billingProvider', 0, 1000, '{\"path\": \"/plan/7/subscribe\", \"body\": {\"userId\": 7}}'), \
    ('exampleProvider', 2, 20, '{\"path\": \"/fails?always=1\", \"body\": [1]}'), \
    ('exampleProvider', 0, 1000, '{\"body\": {\"no\": \"path\"}}')";
const ROWS: &str = "select string_agg(concat_ws(' ', destination, status, attempts, \
    \"updatedAt\" is not null), ', ' order by \"createdAt\", \"retryLimit\" desc) from \"outbox\"";

fn example(file: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    root.join("examples/camel-case-outbox").join(file)
}

/// Both providers: all that they got, in order; they fail what asks for it.
async fn providers() -> (String, Requests) {
    let requests = Requests::default();
    let take = async |State(seen): State<Requests>, uri: Uri, headers: HeaderMap, body: String| {
        let header = |name: &str| headers.get(name).map_or("", |value| value.to_str().unwrap());
        let (key, token) = (header("idempotency-key"), header("authorization"));
        let request = (uri.to_string(), key.to_owned(), token.to_owned(), body);
        seen.lock().unwrap().push(request);
        let fails = uri.path().ends_with("/fails");
        if fails { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK }
    };
    let router = Router::new().fallback(take).with_state(requests.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, router).into_future());
    (url, requests)
}

async fn sent_where_the_payload_says(source: &str) {
    let database = fresh_database().await;
    let mut client = database.connect().await;
    Migrator::new().sets([Set::Relay, Set::Webhook]).migrate(&mut client).await.unwrap();
    for file in ["schema.sql", "webhook.sql"] {
        client.batch_execute(&fs::read_to_string(example(file)).unwrap()).await.unwrap();
    }
    client.batch_execute(INSERT).await.unwrap();
    let (url, requests) = providers().await;
    let folder = TempDir::new().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "t0k3n").unwrap();
    let sets = [
        format!("pipeline.source={source}"),
        format!("pipeline.slot={}", unique_name("slot").replace('-', "_")),
        format!("postgres.url={}", database.url()),
        format!("destination.billingProvider.url={url}"),
        format!("destination.billingProvider.token_file={}", token.display()),
        format!("destination.exampleProvider.url={url}/api"),
        "destination.allow_http=true".to_owned(),
        "destination.allow_private_networks=true".to_owned(),
        "http.listen=".to_owned(),
    ];
    let config = example("webhook.toml").display().to_string();
    let sets = sets.iter().flat_map(|set| ["--set", set.as_str()]);
    let arguments = ["run", "--config", &config].into_iter().chain(sets);
    let none: [(&str, &str); 0] = [];
    let running = Process::start(walpost_binary(), arguments, none);
    let expected = "billingProvider sent 1 t, exampleProvider failed 3 t, exampleProvider sent 1 t";
    until(LIMIT, "all rows marked", async || {
        assert!(running.is_running(), "{}", running.log());
        client.query_one(ROWS, &[]).await.unwrap().get::<_, &str>(0) == expected
    })
    .await;
    assert!(running.terminate(LIMIT).success(), "{}", running.log());
    let ids = "select id::text from \"outbox\" order by \"createdAt\"";
    let ids: Vec<String> =
        client.query(ids, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    let request = |path: &str, id: usize, token: &str, body: &str| {
        (path.to_owned(), ids[id].clone(), token.to_owned(), body.to_owned())
    };
    let mut requests = requests.lock().unwrap().clone();
    requests.sort();
    let mut expected = vec![
        request("/plan/7/subscribe", 0, "Bearer t0k3n", "{\"userId\": 7}"),
        request("/api", 2, "", "{\"no\": \"path\"}"),
    ];
    expected.extend(vec![request("/api/fails?always=1", 1, "", "[1]"); 3]);
    expected.sort();
    assert_eq!(requests, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_with_path_and_body_in_one_column_is_sent_there_from_the_wal() {
    sent_where_the_payload_says("native").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_with_path_and_body_in_one_column_is_sent_there_polled() {
    sent_where_the_payload_says("polling").await;
}
