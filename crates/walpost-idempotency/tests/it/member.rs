//! A server in a process of its own, which can be killed: this binary, started
//! again. Beside it a provider that is not rolled back: a table that is written
//! on another connection.

use std::{env, net::Ipv4Addr, sync::Arc, time::Duration};

use axum::{
    Router,
    response::{IntoResponse, Response},
    routing::post,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_postgres::{Client, Config, NoTls};
use walpost_idempotency::{
    Mode, Policy,
    http::{Database, Run, Tx, TxError},
};
use walpost_testkit::{Process, until_some};

use crate::{
    handler::layer,
    support::{LIMIT, World},
};

const DATABASE: &str = "MEMBER_DATABASE";
const FAILPOINT: &str = "WALPOST_FAILPOINT";
const LISTENS: &str = "listens on ";

const TEST: &str = "member::a_server_in_a_process_of_its_own_answers";

/// A server that is at work, and its port.
pub(crate) struct Member {
    pub(crate) process: Process,
    port: u16,
}

/// Status, head and body of an answer over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn is_replay(&self) -> bool {
        self.head.contains("idempotent-replayed: true")
    }
}

impl Member {
    /// With a failpoint, or none.
    pub(crate) async fn start(world: &World, failpoint: Option<&str>) -> Self {
        let mut environment = vec![(DATABASE, world.database.url()), ("RUST_LOG", "warn")];
        let failpoint = failpoint.map(|failpoint| format!("idempotency/{failpoint}"));
        environment.extend(failpoint.as_deref().map(|failpoint| (FAILPOINT, failpoint)));
        let program = env::current_exe().unwrap();
        let process = Process::start(program, ["--exact", TEST, "--nocapture"], environment);
        let port = until_some(LIMIT, "a server that listens", async || {
            let log = process.log();
            let line = log.lines().find_map(|line| line.split(LISTENS).nth(1));
            line.and_then(|port| port.trim().parse().ok())
        })
        .await;
        Self { process, port }
    }

    /// An answer, or none where the server died.
    pub(crate) async fn post(&self, path: &str, key: &str) -> Option<Answer> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.unwrap();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: test\r\nx-user: alice\r\nidempotency-key: {key}\r\n\
             connection: close\r\ncontent-length: 4\r\n\r\nbody"
        );
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Answer { status, head: head.to_owned(), body: body.to_owned() })
    }
}

/// Without the environment: a test. With it: the process.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_in_a_process_of_its_own_answers() {
    if let Ok(url) = env::var(DATABASE) {
        return serve(url.parse().unwrap()).await;
    }
    let world = World::new().await;
    world.client.batch_execute(PROVIDER).await.unwrap();
    let member = Member::start(&world, None).await;
    for path in ["/orders", "/checkout"] {
        let first = member.post(path, "k").await.unwrap();
        assert_eq!((first.status, first.is_replay()), (200, false), "{first:?}");
        let again = member.post(path, "k").await.unwrap();
        assert!(again.is_replay() && again.body == first.body, "{again:?}");
    }
    assert_eq!(world.effects().await, ["checkout", "order"]);
    assert!(member.process.is_running());
}

/// What the provider knows: one charge for each of its keys.
pub(crate) const PROVIDER: &str =
    "create table charge (key text primary key, calls int not null default 1)";

async fn serve(config: Config) {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    let provider = Arc::new(client);
    let pool = Database::config(config).answer_timeout(LIMIT);
    let leased = Policy::new("checkout").mode(Mode::Leased).lease(Duration::from_secs(600));
    let checkout = post(move |run: Run| checkout(Arc::clone(&provider), run));
    let router = Router::new()
        .route("/orders", post(order).layer(layer(pool.clone(), Policy::new("orders"))))
        .route("/checkout", checkout.layer(layer(pool, leased)));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    println!("{LISTENS}{}", listener.local_addr().unwrap().port());
    axum::serve(listener, router).await.unwrap();
}

async fn effect(tx: &tokio_postgres::Transaction<'_>, name: &str) -> Result<i64, TxError> {
    let sql = "insert into effect (name) values ($1) returning number";
    Ok(tx.query_one(sql, &[&name]).await?.get(0))
}

async fn order(tx: Tx) -> Result<String, TxError> {
    let number = tx.run(|tx| Box::pin(effect(tx, "order"))).await?;
    Ok(number.to_string())
}

/// Charges at the provider, under the same key in each run, and then writes down
/// that it has.
async fn checkout(provider: Arc<Client>, run: Run) -> Response {
    let key = run.key_for("charge");
    if run.recovery_point().is_none() {
        let sql = "insert into charge (key) values ($1) \
                   on conflict (key) do update set calls = charge.calls + 1";
        provider.execute(sql, &[&key]).await.unwrap();
        let done: Result<i64, TxError> =
            run.phase("charged", |tx| Box::pin(effect(tx, "checkout"))).await;
        if let Err(error) = done {
            return error.into_response();
        }
    }
    key.into_response()
}
