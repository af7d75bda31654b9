//! The ERP's outbox, which has no column that Walpost would have added: its rows
//! leave once they say that they arrived.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio_postgres::Client;
use walpost_migrate::{Migrator, Set};
use walpost_testkit::{Process, postgres, until};
use walpost_tests::{LIMIT, Receiver, Shop};

const MARK: &str = "select walpost.webhook_mark('finance_outbox', 'delivery_status', \
    attempts_column => 'delivery_attempts', last_attempt_at_column => 'last_attempt_at', \
    delivered_at_column => 'delivered_at'); \
    create table finance_outbox_archive (like finance_outbox, \
    archived_at timestamptz not null default clock_timestamp())";

/// Nobody is told of what fails.
const SETTINGS: [&str; 7] = [
    "webhook.alert_destination=",
    "destination.allow_http=true",
    "destination.allow_private_networks=true",
    "destination.retry_limit=0",
    "destination.breaker_failures=0",
    "destination.nobody.url=http://127.0.0.1:1/",
    "destination.nobody.events=invoice.lost",
];

/// A delivery that failed, of an event of another table with the id of one that arrived.
const OF_ANOTHER_TABLE: &str = "begin; set local session_replication_role = replica; \
    create table other (id uuid); \
    insert into walpost.id_space (outbox, scope, only_walpost) values ('other', 'table', true); \
    insert into walpost.webhook_delivery (destination, event_id, source, idempotency_key, body, \
        state, attempts, fence, next_attempt_at, finished_at, outcome) \
    select 'elsewhere', o.id::text, s.id::text, 'k', 'b', 'failed', 1, 1, null, now(), 'http_5xx' \
    from finance_outbox o, walpost.id_space s \
    where o.idempotency_key = 'arrived' and s.outbox = 'other'::regclass; commit";

/// Longer than a snapshot takes to be proven.
const BETWEEN_EVENTS: Duration = Duration::from_secs(3);
const KEY: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

struct World {
    shop: Shop,
    client: Client,
    receiver: Receiver,
    config: String,
    /// With the key that signs.
    folder: TempDir,
}

impl World {
    async fn new() -> Self {
        let shop = Shop::without_topic(postgres()).await;
        let mut client = shop.connect().await;
        Migrator::new().set(Set::Webhook).migrate(&mut client).await.unwrap();
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/finance-outbox");
        let schema = fs::read_to_string(example.join("schema.sql")).unwrap();
        client.batch_execute(&schema).await.unwrap();
        client.batch_execute(MARK).await.unwrap();
        let config = example.join("webhook.toml").to_str().unwrap().to_owned();
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("key"), KEY).unwrap();
        Self { shop, client, receiver: Receiver::start(0, 0).await, config, folder }
    }

    /// Nothing leaves by itself: one pass at a time.
    fn run(&self) -> Process {
        self.walpost(&["run", "--set", "retention.enabled=false"])
    }

    fn walpost(&self, command: &[&str]) -> Process {
        let url = format!("destination.logistics.url={}", self.receiver.url());
        let publication = format!("pipeline.publication={}", self.shop.name);
        let paid = "destination.logistics.events=invoice.paid";
        let key = self.folder.path().join("key");
        let key = format!("destination.logistics.signing_key_files={}", key.display());
        let sets = SETTINGS.into_iter().chain([&*url, &*publication, &*key, paid]);
        let args: Vec<&str> = [command, &["--config", &self.config]]
            .concat()
            .into_iter()
            .chain(sets.flat_map(|set| ["--set", set]))
            .collect();
        self.shop.walpost(args)
    }

    async fn insert(&self, key: &str, event_type: &str) {
        let insert = "insert into finance_outbox (event_type, payload, idempotency_key) \
                      values ($1, '{}', $2)";
        self.client.execute(insert, &[&event_type, &key]).await.unwrap();
    }

    async fn until(&self, what: &str, sql: &str) {
        until(LIMIT, what, async || -> bool {
            self.client.query_one(&format!("select {sql}"), &[]).await.unwrap().get(0)
        })
        .await;
    }

    /// As if everything had happened so long before.
    async fn shift(&self, ago: &str) {
        let times = ["created_at", "delivered_at"];
        let set = times.map(|time| format!("{time} = {time} - interval '{ago}'")).join(", ");
        let archived = format!("set archived_at = archived_at - interval '{ago}'");
        let sql = format!(
            "update finance_outbox set {set} where idempotency_key not like 'later%'; \
             update finance_outbox_archive {archived}"
        );
        self.client.batch_execute(&sql).await.unwrap();
    }

    /// More events, behind which everything before them is proven: a snapshot is taken
    /// behind each, and the transactions of other tests on the server hold one up.
    async fn proven(&self, key: &str) {
        let before = "select pg_snapshot_xmax(pg_current_snapshot())::text";
        let before: String = self.client.query_one(before, &[]).await.unwrap().get(0);
        let proven = format!(
            "select coalesce((select pg_snapshot_xmin((proven ->> 'snapshot')::pg_snapshot) \
             >= '{before}'::xid8 from walpost.checkpoint), false)"
        );
        let (mut inserted, mut last) = (0, None::<Instant>);
        until(3 * LIMIT, "a snapshot that is proven", async || -> bool {
            if last.is_none_or(|last| last.elapsed() >= BETWEEN_EVENTS) {
                self.insert(&format!("{key}, {inserted}"), "invoice.paid").await;
                (inserted, last) = (inserted + 1, Some(Instant::now()));
            }
            self.client.query_one(&proven, &[]).await.unwrap().get(0)
        })
        .await;
    }

    /// What `walpost prune --yes` leaves in the outbox and in the archive.
    async fn prune(&self) -> [Vec<String>; 2] {
        let pruning = self.walpost(&["prune", "--yes"]);
        assert!(pruning.wait(LIMIT).success(), "{}", pruning.log());
        let keys = async |table: &str| {
            let sql = format!(
                "select idempotency_key from {table} where idempotency_key not like 'later%' \
                 order by 1"
            );
            let rows = self.client.query(&sql, &[]).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect::<Vec<String>>()
        };
        [keys("finance_outbox").await, keys("finance_outbox_archive").await]
    }
}

fn keys(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_arrived_leave_an_outbox_without_xid_at_30_days_and_its_archive_at_a_year() {
    let world = World::new().await;
    let running = world.run();
    world.shop.slot_made().await;
    // One arrives, one fails, one is held, one goes nowhere.
    for (key, event_type) in
        [("arrived", "invoice.paid"), ("failed", "invoice.lost"), ("nowhere", "invoice.refunded")]
    {
        world.insert(key, event_type).await;
    }
    let state = |key: &str, state: &str| {
        format!(
            "(select delivery_status = '{state}' from finance_outbox \
             where idempotency_key = '{key}')"
        )
    };
    world.until("what arrived", &state("arrived", "delivered")).await;
    world.until("what failed", &state("failed", "failed")).await;
    let hold = "insert into walpost.webhook_destination (name, state, reason) \
                values ('logistics', 'disabled', 'moves') \
                on conflict (name) do update set state = 'disabled', reason = 'moves'";
    world.client.batch_execute(hold).await.unwrap();
    world.insert("held", "invoice.paid").await;
    let held = "(select count(*) = 1 from walpost.webhook_delivery where state = 'held')";
    world.until("what is held", held).await;
    world.client.batch_execute(OF_ANOTHER_TABLE).await.unwrap();
    let all = keys(&["arrived", "failed", "held", "nowhere"]);
    world.shift("29 days 23 hours").await;
    world.proven("later 1").await;
    assert_eq!(world.prune().await, [all.clone(), vec![]], "not yet");
    // The shift changes the rows, and while nobody reads nothing proves them as they
    // are then.
    assert!(running.terminate(LIMIT).success(), "{}", running.log());
    world.shift("1 hour").await;
    assert_eq!(world.prune().await, [all, vec![]], "not proven");
    let running = world.run();
    world.proven("later 2").await;
    let rest = keys(&["failed", "held", "nowhere"]);
    assert_eq!(world.prune().await, [rest.clone(), keys(&["arrived"])]);
    // A delivery that somebody makes anew keeps its row, whatever that says.
    let says = "update finance_outbox set delivery_status = 'delivered', \
                delivered_at = created_at where idempotency_key <> 'nowhere'";
    world.client.batch_execute(says).await.unwrap();
    world.proven("later 3").await;
    assert_eq!(world.prune().await, [rest.clone(), keys(&["arrived"])], "failed and held");
    world.shift("334 days 23 hours").await;
    world.proven("later 4").await;
    assert_eq!(world.prune().await, [rest.clone(), keys(&["arrived"])], "not a year yet");
    world.shift("1 hour").await;
    assert_eq!(world.prune().await, [rest, vec![]], "a year");
    assert!(running.terminate(LIMIT).success(), "{}", running.log());
}
