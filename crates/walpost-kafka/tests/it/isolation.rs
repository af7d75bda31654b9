//! A whole relay, some of whose events its topics do not take: the others wait for
//! none of them.

use std::time::Duration;

use tokio_postgres::Client;
use walpost_encode::{Encoder, Encoding};
use walpost_migrate::{Migrator, Set};
use walpost_postgres::Database;
use walpost_relay::{Phase, Relay, RelayConfig, RunningRelay};
use walpost_router::RouterConfig;
use walpost_testkit::{
    create_topic, fresh_database, kafka, local::Kafka, read_all, unique_name, until,
};

use crate::rig::{LIMIT, connector};

/// Of which every hundredth row, and no other, is not taken or cannot be converted.
const ROWS: u32 = 101_000;
const TOPICS: u32 = 50;
/// Rows of one statement.
const BATCH: u32 = 101;
/// Between two of them.
const PACE: Duration = Duration::from_millis(50);
/// Within which good events of the other topics are in their topics.
const P99_MAX: Duration = Duration::from_secs(2);

struct Shop {
    client: Client,
    prefix: String,
    bootstrap: String,
    relay: RunningRelay,
}

impl Shop {
    /// A relay that streams; the column `traceparent` is the key of its records.
    async fn open(bootstrap: &str, adjust: impl FnOnce(&mut RouterConfig)) -> Self {
        let fresh = fresh_database().await;
        let database = Database::parse(fresh.url()).unwrap();
        let mut client = database.connect().await.unwrap();
        Migrator::new().set(Set::Relay).migrate(&mut client).await.unwrap();
        let prefix = unique_name("iso");
        let mut config = RelayConfig::new("shop");
        config.slot = prefix.replace('-', "_");
        config.wal_sender_timeout_ms = 60_000;
        let mut router = RouterConfig {
            event_key: "traceparent".into(),
            topic_replacement: format!("{prefix}.${{routedByValue}}"),
            ..RouterConfig::default()
        };
        adjust(&mut router);
        let encoding = Encoding { key: Encoder::Raw, value: Encoder::Raw };
        let relay = Relay::new(database, config, router, encoding).unwrap();
        let sink = connector(bootstrap, &[]);
        let relay = relay.start(async move || sink.connect().await);
        let bootstrap = bootstrap.to_owned();
        Self { client, prefix, bootstrap, relay }
    }

    async fn streams(&mut self) {
        let mut status = self.relay.status();
        let streams = status.wait_for(|status| status.phase == Phase::Streaming);
        tokio::time::timeout(LIMIT, streams).await.expect("it streams").unwrap();
    }

    async fn topic(&self, name: &str, settings: &[(&str, &str)]) {
        let settings = [settings, &[("message.timestamp.type", "LogAppendTime")]].concat();
        create_topic(&self.bootstrap, &format!("{}.{name}", self.prefix), 1, &settings).await;
    }

    async fn parked(&self) -> i64 {
        let sql = "select count(*) from walpost.parked where reason <> 'behind'";
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// How many records a topic has, and how long each took from its row to its place.
    async fn latencies(&self, name: &str) -> Vec<Duration> {
        let records = read_all(&self.bootstrap, &format!("{}.{name}", self.prefix)).await;
        let of = |record: &walpost_testkit::ReadRecord| {
            let text = record.value_text();
            let at = text.split_once("\"at\": ").unwrap().1.trim_end_matches('}');
            let took_ms = record.timestamp_ms.unwrap() - at.parse::<i64>().unwrap();
            Duration::from_millis(took_ms.try_into().unwrap_or_default())
        };
        records.iter().map(of).collect()
    }

    async fn stop(mut self) {
        self.relay.stop();
        self.relay.finished().await.unwrap();
    }
}

const PAYLOAD: &str =
    "jsonb_build_object('at', floor(extract(epoch from clock_timestamp()) * 1000)::int8)";

/// Which rows are the bad ones.
enum Bad {
    /// Without a key, to a compacted topic.
    WithoutKey,
    /// Of a time that no record can have.
    OfNoTime,
}

/// Good events of all topics, and bad ones of the first.
async fn others_wait_for_none(shop: &Shop, bad: &Bad) {
    let (key, created_at) = match bad {
        Bad::WithoutKey => ("null", "clock_timestamp()"),
        Bad::OfNoTime => ("'b' || n", "'infinity'::timestamptz"),
    };
    let insert = format!(
        "insert into walpost.outbox \
             (aggregatetype, aggregateid, type, payload, traceparent, created_at) \
         select case when n % 101 = 0 then 't0' else 't' || (n % {TOPICS}) end, n::text, 'x', \
             {PAYLOAD}, case when n % 101 = 0 then {key} else 'k' || n % 1000 end, \
             case when n % 101 = 0 then {created_at} else clock_timestamp() end \
         from generate_series($1::int4, $2::int4) n"
    );
    let insert = shop.client.prepare(&insert).await.unwrap();
    let mut ticks = tokio::time::interval(PACE);
    for first in (0..ROWS as i32).step_by(BATCH as usize) {
        ticks.tick().await;
        shop.client.execute(&insert, &[&first, &(first + BATCH as i32 - 1)]).await.unwrap();
    }
    let bad = i64::from(ROWS / 101);
    until(LIMIT, "the bad ones parked", async || shop.parked().await >= bad).await;
    let good = (ROWS - ROWS / 101) as usize;
    let published = || shop.relay.status().borrow().published as usize;
    until(LIMIT, "the good ones published", async || published() >= good).await;
    let (mut others, mut own) = (Vec::new(), 0);
    for topic in 0..TOPICS {
        let found = shop.latencies(&format!("t{topic}")).await;
        match topic {
            0 => own = found.len(),
            _ => others.extend(found),
        }
    }
    others.sort();
    assert_eq!((own + others.len(), shop.parked().await), (good, bad));
    let at = |percent: usize| others[(others.len() * percent / 100).min(others.len() - 1)];
    let (p50, p99, max) = (at(50), at(99), at(100));
    println!("{} events of other topics: p50 {p50:?}, p99 {p99:?}, at most {max:?}", others.len());
    assert!(p99 <= P99_MAX, "p99 is {p99:?}");
}

async fn topics(shop: &Shop, first: &[(&str, &str)]) {
    shop.topic("t0", first).await;
    for topic in 1..TOPICS {
        shop.topic(&format!("t{topic}"), &[]).await;
    }
}

const COMPACTED: [(&str, &str); 1] = [("cleanup.policy", "compact")];

/// A broker that tells nobody the settings of topics.
fn reticent() -> Kafka {
    let authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
    let broker = Kafka::builder()
        .property("authorizer.class.name", authorizer)
        .property("allow.everyone.if.no.acl.found", "true")
        .start()
        .unwrap();
    let bootstrap = broker.bootstrap();
    let everybody = ["--add", "--allow-principal", "User:*"];
    let rights = ["--operation", "Write", "--operation", "Read", "--operation", "Create"];
    let topics = ["--topic", "iso", "--resource-pattern-type", "prefixed"];
    let args = ["--bootstrap-server", &bootstrap].into_iter().chain(everybody);
    broker.run_tool("org.apache.kafka.tools.AclCommand", args.chain(rights).chain(topics)).unwrap();
    broker
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: 100,000 events"]
async fn what_a_topic_is_known_to_refuse_holds_up_no_other() {
    let mut shop = Shop::open(kafka().bootstrap(), |_| {}).await;
    topics(&shop, &COMPACTED).await;
    shop.streams().await;
    others_wait_for_none(&shop, &Bad::WithoutKey).await;
    shop.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: 100,000 events and a broker of its own"]
async fn what_only_the_broker_knows_to_refuse_holds_up_no_other() {
    let broker = reticent();
    let mut shop = Shop::open(&broker.bootstrap(), |_| {}).await;
    topics(&shop, &COMPACTED).await;
    shop.streams().await;
    others_wait_for_none(&shop, &Bad::WithoutKey).await;
    shop.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: 100,000 events"]
async fn what_cannot_be_converted_holds_up_no_other() {
    let timed = |router: &mut RouterConfig| router.event_timestamp = Some("created_at".into());
    let mut shop = Shop::open(kafka().bootstrap(), timed).await;
    topics(&shop, &[]).await;
    shop.streams().await;
    others_wait_for_none(&shop, &Bad::OfNoTime).await;
    shop.stop().await;
}

/// Every second of 40 rows is refused; how often the relay began anew.
async fn every_second_one_is_refused(bootstrap: &str) {
    let mut shop = Shop::open(bootstrap, |_| {}).await;
    shop.topic("compacted", &COMPACTED).await;
    shop.topic("other", &[]).await;
    shop.streams().await;
    let insert = format!(
        "insert into walpost.outbox (aggregatetype, aggregateid, type, payload, traceparent) \
         select 'compacted', n::text, 'x', {PAYLOAD}, case when n % 2 = 0 then 'k' end \
         from generate_series(1, 40) n"
    );
    shop.client.batch_execute(&insert).await.unwrap();
    let other = format!(
        "insert into walpost.outbox (aggregatetype, aggregateid, type, payload, traceparent) \
         values ('other', '1', 'x', {PAYLOAD}, 'k')"
    );
    shop.client.batch_execute(&other).await.unwrap();
    until(LIMIT, "20 parked", async || shop.parked().await == 20).await;
    until(LIMIT, "20 taken", async || shop.latencies("compacted").await.len() == 20).await;
    until(LIMIT, "the other one", async || shop.latencies("other").await.len() == 1).await;
    let took = shop.latencies("other").await[0];
    println!("the other topic waited {took:?}");
    assert!(took < Duration::from_secs(10), "the other topic waited {took:?}");
    shop.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_without_a_key_are_not_sent_to_a_compacted_topic() {
    every_second_one_is_refused(kafka().bootstrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: a broker of its own"]
async fn records_that_only_the_broker_refuses_end_one_session_and_no_more() {
    let broker = reticent();
    every_second_one_is_refused(&broker.bootstrap()).await;
}
