//! A real Prometheus scrapes the real programs, with the rules that are shipped:
//! what is wrong fires, and what is well does not.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod prometheus;

use std::{
    collections::BTreeSet,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, http::StatusCode, routing::post};
use tokio::{
    net::TcpListener,
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};
use tokio_postgres::Client;
use walpost_migrate::{Migrator, Set};
use walpost_testkit::{Process, local::free_port, postgres, until};
use walpost_tests::{LIMIT, Shop, http_ask, http_get, walpost_binary};

use crate::prometheus::Prometheus;

const API: &str = env!("CARGO_BIN_EXE_walpost-test-api");
const ROUTE: &str = "POST /orders";

/// An event of this type is not stored for its destination while somebody has the
/// lock: the sink waits, and what is delivered already goes on.
const HELD_BACK: &str = "create function held_back() returns trigger language plpgsql as $$ begin \
        perform pg_advisory_xact_lock_shared(4711); return new; end $$; \
    create trigger held_back before insert on walpost.webhook_delivery \
        for each row when (new.event_type = 'Late') execute function held_back(); \
    create table orders (number bigint generated always as identity, contents text not null)";
const HOLD: &str = "select pg_advisory_lock(4711)";
const RELEASE: &str = "select pg_advisory_unlock(4711)";

/// How the world is. What is not well is so until it is mended.
struct World {
    shop: Shop,
    client: Client,
    /// The receiver of webhooks refuses.
    refuses: Arc<AtomicBool>,
    /// A client of the API takes one key for two requests.
    reuses: Arc<AtomicBool>,
    walpost: Process,
    api: Process,
    ports: [u16; 2],
    traffic: JoinHandle<()>,
}

impl World {
    async fn start() -> Self {
        let shop = Shop::without_topic(postgres()).await;
        let mut client = shop.connect().await;
        let sets = [Set::Webhook, Set::Idempotency];
        Migrator::new().sets(sets).migrate(&mut client).await.unwrap();
        client.batch_execute(HELD_BACK).await.unwrap();
        let [refuses, reuses] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let ports = [(); 2].map(|()| free_port().unwrap());
        let walpost = walpost(&shop, ports[0], &receiver(refuses.clone()).await);
        let api = Process::start(
            API,
            [shop.database.url(), &ports[1].to_string()],
            [("RUST_BACKTRACE", "1")],
        );
        let streaming = format!("walpost_relay_streaming{{pipeline=\"{}\"}} 1", shop.name);
        until(LIMIT, "a relay that streams", async || {
            http_get(ports[0], "/metrics").await.is_ok_and(|text| text.contains(&streaming))
        })
        .await;
        until(LIMIT, "the API", async || http_get(ports[1], "/metrics").await.is_ok()).await;
        let traffic = tokio::spawn(traffic(shop.connect().await, ports[1], reuses.clone()));
        Self { shop, client, refuses, reuses, walpost, api, ports, traffic }
    }

    /// Commits an event that was committed so long ago where it comes from.
    async fn event_of(&self, event_type: &str, ago: &str) {
        let client = self.shop.connect().await;
        let origin = format!("origin_{}", self.shop.name);
        let setup = format!(
            "select pg_replication_origin_create('{origin}') \
                where not exists (select from pg_replication_origin where roname = '{origin}'); \
             select pg_replication_origin_session_setup('{origin}'); begin; \
             select pg_replication_origin_xact_setup('0/1', now() - interval '{ago}'); \
             insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                values ('order', 'late', '{event_type}', '{{}}'); commit"
        );
        client.batch_execute(&setup).await.unwrap();
    }

    /// Waits until an event has arrived.
    async fn arrived(&self, event_type: &str) {
        let sql = "select count(*) from walpost.webhook_delivery \
                   where event_type = $1 and state = 'delivered'";
        let count = async || self.client.query_one(sql, &[&event_type]).await.unwrap().get(0);
        until(LIMIT, event_type, async || -> bool { 0_i64 < count().await }).await;
    }

    async fn stop(self) {
        assert!(!self.traffic.is_finished(), "the traffic has gone on");
        self.traffic.abort();
        assert!(self.walpost.terminate(LIMIT).success(), "{}", self.walpost.log());
        assert!(self.api.is_running(), "{}", self.api.log());
        let drop = "select pg_replication_origin_drop(roname) from pg_replication_origin \
                    where roname = $1";
        let origin = format!("origin_{}", self.shop.name);
        self.client.execute(drop, &[&origin]).await.unwrap();
    }
}

/// A receiver of webhooks; its URL.
async fn receiver(refuses: Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/hooks", listener.local_addr().unwrap());
    let answer = async move || match refuses.load(Ordering::Relaxed) {
        true => StatusCode::SERVICE_UNAVAILABLE,
        false => StatusCode::OK,
    };
    let router = Router::new().route("/hooks", post(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

fn walpost(shop: &Shop, port: u16, url: &str) -> Process {
    let (listen, slot) = (format!("127.0.0.1:{port}"), format!("walpost_{}", shop.name));
    let url = format!("destination.logistics.url={url}");
    let sets = [
        "sink.kind=webhook",
        &*url,
        "destination.allow_http=true",
        "destination.allow_private_networks=true",
        "destination.retry_waits=500ms",
        "destination.retry_limit=10000",
        "destination.breaker_failures=0",
    ];
    let args = ["run"].into_iter().chain(sets.into_iter().flat_map(|set| ["--set", set]));
    let env = [
        ("WALPOST_POSTGRES_URL", shop.database.url()),
        ("WALPOST_PIPELINE_NAME", &*shop.name),
        ("WALPOST_PIPELINE_SLOT", &*slot),
        ("WALPOST_PIPELINE_WAL_SENDER_TIMEOUT_MS", "60000"),
        ("WALPOST_HTTP_LISTEN", &*listen),
    ];
    Process::start(walpost_binary(), args, env)
}

/// An event and a request, ten times a second; each tenth request is a retry of the
/// one before, or has its key for something else.
async fn traffic(client: Client, api: u16, reuses: Arc<AtomicBool>) {
    let mut tick = interval(Duration::from_millis(100));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 1_u64.. {
        tick.tick().await;
        let insert = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                      values ('order', $1, 'Placed', '{}')";
        client.execute(insert, &[&number.to_string()]).await.unwrap();
        let is_tenth = number.is_multiple_of(10);
        let key = if is_tenth { number - 1 } else { number };
        let order = match is_tenth && reuses.load(Ordering::Relaxed) {
            true => "another order".to_owned(),
            false => format!("order {key}"),
        };
        let headers = format!("x-user: alice\r\nidempotency-key: \"key-{key}\"\r\n");
        while http_ask(api, ROUTE, &headers, &order).await.is_err() {
            tick.tick().await;
        }
    }
}

/// Waits until every rule was evaluated for a while over what is measured.
async fn evaluated(prometheus: &Prometheus) {
    for measured in [
        "sum(rate(walpost_webhook_attempts_total[10s]))",
        "sum(rate(walpost_idempotency_requests_total{result=\"replayed\"}[10s]))",
        "count_over_time(walpost_outbox_lag_seconds[10s]) > 8",
    ] {
        until(LIMIT, measured, async || {
            prometheus.value(measured).await.is_some_and(|value| value > 0.0)
        })
        .await;
    }
}

/// Waits until alerts of these names have all fired at more evaluations than this.
async fn last(prometheus: &Prometheus, names: &str, evaluations: u32) {
    let lasting = format!(
        "min(count_over_time(ALERTS{{alertname=~\"{names}\", alertstate=\"firing\"}}[5m])) \
         > {evaluations}"
    );
    until(LIMIT, &lasting, async || prometheus.value(&lasting).await.is_some()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: needs Prometheus"]
async fn a_real_prometheus_fires_for_lag_mismatches_and_failures_and_not_else() {
    let world = World::start().await;
    let [walpost, api] = world.ports;
    let prometheus = Prometheus::start(&[("walpost", walpost), ("api", api)]).await;
    // Less than is too much: an event that is late and arrives, and retries.
    world.event_of("Recent", "200 s").await;
    world.arrived("Recent").await;
    evaluated(&prometheus).await;
    assert_eq!(prometheus.fired().await, BTreeSet::new(), "all is well");

    world.refuses.store(true, Ordering::Relaxed);
    world.reuses.store(true, Ordering::Relaxed);
    let mut expected: BTreeSet<String> = [
        format!("WalpostIdempotencyMismatches warning {ROUTE}"),
        "WalpostWebhookFailing warning logistics".to_owned(),
    ]
    .into();
    prometheus.fires(&expected).await;
    // Time enough for any other.
    last(&prometheus, "WalpostIdempotencyMismatches|WalpostWebhookFailing", 8).await;
    // Behind this no delivery is created: those before it are refused on and on. It
    // is to last less than a statement of the sink may, 20 s.
    let holder = world.shop.connect().await;
    holder.batch_execute(HOLD).await.unwrap();
    world.event_of("Late", "400 s").await;
    expected.insert(format!("WalpostOutboxLag critical {}", world.shop.name));
    prometheus.fires(&expected).await;
    last(&prometheus, "WalpostOutboxLag", 3).await;
    assert_eq!(prometheus.fired().await, expected, "those that are meant");
    let lag =
        prometheus.value("max(max_over_time(walpost_outbox_lag_seconds[30s]))").await.unwrap();
    assert!((400.0..600.0).contains(&lag), "{lag}");

    world.refuses.store(false, Ordering::Relaxed);
    world.reuses.store(false, Ordering::Relaxed);
    holder.batch_execute(RELEASE).await.unwrap();
    world.arrived("Late").await;
    until(LIMIT, "the end of all alerts", async || prometheus.firing().await.is_empty()).await;
    assert_eq!(prometheus.fired().await, expected, "nor on the way back");
    world.stop().await;
}
