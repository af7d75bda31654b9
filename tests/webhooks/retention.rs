//! `walpost run` has old rows leave beside its pipeline: deliveries, an inbox in a
//! database of its own, and requests under idempotency keys.

use walpost_migrate::{Migrator, Set};
use walpost_testkit::{Database, Process, fresh_database, local::free_port, postgres, until};
use walpost_tests::{LIMIT, Receiver, Shop, http_get, walpost_binary};

/// Past the triggers: deliveries by how long ago they arrived, and one of each
/// other state that is as old as any.
const DELIVERIES: &str = "begin; set local session_replication_role = replica; \
    insert into walpost.webhook_delivery (destination, event_id, idempotency_key, body, state, \
        attempts, fence, finished_at, outcome, next_attempt_at) \
    select 'gone', ago, ago, 'b', 'delivered', 1, 1, now() - ago::interval, 'success', null \
    from unnest(array['30 days -5 minutes', '30 days', '365 days -5 minutes', '365 days']) ago; \
    insert into walpost.webhook_delivery (destination, event_id, idempotency_key, body, state, \
        attempts, fence, created_at, finished_at, outcome, next_attempt_at) \
    select 'gone', state, state, 'b', state, 1, 1, now() - interval '9 years', \
        case when state = 'failed' then now() - interval '9 years' end, 'http_5xx', \
        case when state = 'pending' then now() + interval '9 years' end \
    from unnest(array['pending', 'failed', 'held', 'unknown']) state; commit";
/// Likewise, events by how long ago they were done.
const INBOX: &str = "begin; set local session_replication_role = replica; \
    insert into walpost.inbox (event_id, event_type, processing_state, payload, payload_hash, \
        payload_bytes, processed_at, next_attempt_at) \
    select ago, 't', 'succeeded', 'p', sha256('p'), 1, now() - ago::interval, null \
    from unnest(array['30 days -5 minutes', '30 days', '90 days -5 minutes', '90 days']) ago; commit";
/// Requests by when they expire, of policies of 24 and of 72 hours.
const REQUESTS: &str = "insert into walpost.idempotency (lookup, route, fingerprint, status, \
        created_at, completed_at, expires_at, response_status, header_names, header_values, body) \
    select sha256(convert_to(ago || ttl, 'utf8')), ago || ' of ' || ttl, sha256(''), 'completed', \
        now() - ago::interval, now() - ago::interval, now() - ago::interval + ttl::interval, 201, \
        '{}', '{}', '' \
    from (values ('23 hours 55 minutes', '24 hours'), ('24 hours', '24 hours'), \
        ('71 hours 55 minutes', '72 hours'), ('72 hours', '72 hours')) t (ago, ttl)";
const LATER: &str = "begin; set local session_replication_role = replica; \
    update TABLE set TIME = TIME - interval '5 minutes'; commit";

const SETTINGS: [&str; 8] = [
    "sink.kind=webhook",
    "destination.allow_http=true",
    "destination.allow_private_networks=true",
    "webhook.prune=true",
    "retention.batch_rows=2",
    "retention.pause_ms=1",
    "inbox.prune=true",
    "idempotency.prune=true",
];

struct World {
    shop: Shop,
    elsewhere: Database,
    receiver: Receiver,
}

impl World {
    async fn new() -> Self {
        let (shop, elsewhere) = (Shop::without_topic(postgres()).await, fresh_database().await);
        let mut client = shop.connect().await;
        let sets = [Set::Webhook, Set::Idempotency];
        Migrator::new().sets(sets).migrate(&mut client).await.unwrap();
        client.batch_execute(DELIVERIES).await.unwrap();
        client.batch_execute(REQUESTS).await.unwrap();
        let mut client = elsewhere.connect().await;
        Migrator::new().set(Set::Inbox).migrate(&mut client).await.unwrap();
        client.batch_execute(INBOX).await.unwrap();
        Self { shop, elsewhere, receiver: Receiver::start(0, 0).await }
    }

    /// With the inbox at `inbox`; and the port of its metrics.
    fn walpost(&self, command: &[&str], inbox: &str) -> (Process, u16) {
        let url = format!("destination.orders.url={}", self.receiver.url());
        let inbox = format!("inbox.url={inbox}");
        let sets = SETTINGS.into_iter().chain([&*url, &*inbox]);
        let args: Vec<&str> =
            command.iter().copied().chain(sets.flat_map(|set| ["--set", set])).collect();
        let port = free_port().unwrap();
        let (listen, slot) = (format!("127.0.0.1:{port}"), format!("walpost_{}", self.shop.name));
        let env = [
            ("WALPOST_POSTGRES_URL", self.shop.database.url()),
            ("WALPOST_PIPELINE_NAME", self.shop.name.as_str()),
            ("WALPOST_PIPELINE_SLOT", slot.as_str()),
            ("WALPOST_HTTP_LISTEN", listen.as_str()),
        ];
        (Process::start(walpost_binary(), args, env), port)
    }

    /// What is in the first table, in the archive, in the inbox, of these with a
    /// payload, and what is stored of requests.
    async fn left(&self) -> [Vec<String>; 5] {
        let (shop, elsewhere) = (self.shop.connect().await, self.elsewhere.connect().await);
        let texts = async |client: &tokio_postgres::Client, sql: &str| {
            let rows = client.query(sql, &[]).await.unwrap();
            rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>()
        };
        let inbox = "select event_id from walpost.inbox where payload is not null or";
        [
            texts(
                &shop,
                "select event_id from walpost.webhook_delivery where destination = 'gone' \
                 order by id",
            )
            .await,
            texts(&shop, "select event_id from walpost.webhook_archive order by id").await,
            texts(&elsewhere, &format!("{inbox} true order by seq")).await,
            texts(&elsewhere, &format!("{inbox} false order by seq")).await,
            texts(&shop, "select route from walpost.idempotency order by route").await,
        ]
    }

    /// Waits until an event that is written now has arrived.
    async fn delivers(&self, event_type: &str) {
        let before = self.receiver.seen().len();
        let client = self.shop.connect().await;
        let insert = "insert into walpost.outbox (aggregatetype, aggregateid, type, payload) \
                      values ('order', 'a', $1, '{}')";
        client.execute(insert, &[&event_type]).await.unwrap();
        until(LIMIT, "a delivery", async || self.receiver.seen().len() > before).await;
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn walpost_run_has_old_rows_leave_at_their_days_and_delivers_meanwhile() {
    let world = World::new().await;
    let inbox = world.elsewhere.url().to_owned();
    let (check, _) = world.walpost(&["check", "--json"], &inbox);
    let (status, told) = (check.wait(LIMIT), check.log());
    assert!(status.success(), "{told}");
    for name in ["deliveries", "the inbox", "idempotency keys"] {
        let fine =
            format!("\"name\":\"retention of {name}\",\"next_step\":null,\"outcome\":\"ok\"");
        assert!(told.contains(&fine), "{told}");
    }
    let open = ["pending", "failed", "held", "unknown"];
    let first = [
        texts(&[&["30 days -5 minutes"], &open[..]].concat()),
        texts(&["30 days", "365 days -5 minutes"]),
        texts(&["30 days -5 minutes", "30 days", "90 days -5 minutes"]),
        texts(&["30 days -5 minutes"]),
        texts(&["23 hours 55 minutes of 24 hours", "71 hours 55 minutes of 72 hours"]),
    ];
    let (running, _) = world.walpost(&["run"], &inbox);
    until(LIMIT, "what is old enough", async || world.left().await == first).await;
    world.shop.slot_made().await;
    world.delivers("Placed").await;
    assert!(running.terminate(LIMIT).success(), "{}", running.log());
    // The clock goes on by five minutes.
    let (shop, elsewhere) = (world.shop.connect().await, world.elsewhere.connect().await);
    for (client, table, time) in [
        (&shop, "walpost.webhook_delivery", "finished_at"),
        (&shop, "walpost.webhook_archive", "finished_at"),
        (&shop, "walpost.idempotency", "expires_at"),
        (&elsewhere, "walpost.inbox", "processed_at"),
    ] {
        let shift = LATER.replace("TABLE", table).replace("TIME", time);
        client.batch_execute(&shift).await.unwrap();
    }
    let second = [
        texts(&open),
        texts(&["30 days -5 minutes", "30 days"]),
        texts(&["30 days -5 minutes", "30 days"]),
        texts(&[]),
        texts(&[]),
    ];
    let (running, _) = world.walpost(&["run"], &inbox);
    until(LIMIT, "what has got old enough", async || world.left().await == second).await;
    world.delivers("Paid").await;
    assert!(running.terminate(LIMIT).success(), "{}", running.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retention_that_fails_is_told_and_counted_and_stops_no_delivery() {
    let world = World::new().await;
    let nowhere = format!("postgres://nobody@127.0.0.1:{}/none", free_port().unwrap());
    let (check, _) = world.walpost(&["check", "--json"], &nowhere);
    let (status, told) = (check.wait(LIMIT), check.log());
    assert!(status.success(), "a warning: {told}");
    assert!(told.contains("cannot reach PostgreSQL at 127.0.0.1"), "{told}");
    let (running, port) = world.walpost(&["run"], &nowhere);
    let counted = "walpost_inbox_prune_failures_total{schema=\"walpost\"} 1";
    let metrics =
        async || http_get(port, "/metrics").await.is_ok_and(|text| text.contains(counted));
    until(LIMIT, "the failure in the metrics", metrics).await;
    world.shop.slot_made().await;
    world.delivers("Placed").await;
    let others = async || {
        let [_, archive, _, _, requests] = world.left().await;
        (archive.len(), requests.len()) == (2, 2)
    };
    until(LIMIT, "the other tables", others).await;
    assert!(running.log().contains("old events stay in the inbox"), "{}", running.log());
    assert!(running.terminate(LIMIT).success(), "{}", running.log());
}
