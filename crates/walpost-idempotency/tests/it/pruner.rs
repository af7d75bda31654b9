//! Retention by itself: requests whose times are shifted leave beside whatever
//! else goes on, and nothing goes wrong for good.

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::{sync::oneshot, task::JoinHandle};
use tokio_postgres::{Client, NoTls};
use walpost_idempotency::{AfterExpiry, Claim, Error, Idempotency, Policy, Pruned, Pruner};
use walpost_testkit::{unique_name, until};

use crate::{
    grants::role,
    support::{LIMIT, World, policy},
};

/// A pruner that looks once a second.
fn pruner() -> Pruner {
    Pruner::new().batch_rows(2).every(Duration::from_secs(1))
}

struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    /// As `user`, or else as the owner.
    fn start(world: &World, pruner: Pruner, user: Option<&str>) -> Self {
        let mut config = world.database.config();
        if let Some(user) = user {
            config.user(user).password("x");
        }
        let (stop, stopped) = oneshot::channel::<()>();
        let connect = move || {
            let config = config.clone();
            async move {
                let (client, connection) = config.connect(NoTls).await?;
                tokio::spawn(connection);
                Ok::<Client, tokio_postgres::Error>(client)
            }
        };
        let task = tokio::spawn(async move {
            pruner.run(connect, async { drop(stopped.await) }).await;
        });
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }
}

async fn request(world: &World, key: &str, policy: &Policy) {
    let claim = world.request(("alice", key, "a"), policy).await.unwrap();
    assert_eq!(claim, Claim::New(()), "{key}");
}

/// How many are there, and how many with an answer.
async fn left(world: &World) -> (i64, i64) {
    let sql = "select count(*), count(body) from walpost.idempotency";
    let row = world.client.query_one(sql, &[]).await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn with_a_shifted_clock_requests_leave_by_themselves_at_24_and_at_72_hours() {
    let world = World::new().await;
    let hours = |hours: u64| Duration::from_secs(hours * 3_600);
    let long = policy().ttl(hours(72));
    let gone = policy().ttl(hours(72)).after_expiry(AfterExpiry::Gone).tombstone(hours(240));
    // At the end exactly 72 and 24 hours old, and a minute less.
    request(&world, "72 hours", &long).await;
    request(&world, "72 hours, gone", &gone).await;
    world.shift("1 minute").await;
    request(&world, "nearly 72 hours", &long).await;
    request(&world, "nearly 72 hours, gone", &gone).await;
    world.shift("47 hours 59 minutes").await;
    request(&world, "24 hours", &policy()).await;
    world.shift("1 minute").await;
    request(&world, "nearly 24 hours", &policy()).await;
    world.shift("23 hours 59 minutes").await;
    assert_eq!(left(&world).await, (6, 6));
    let running = Running::start(&world, pruner(), None);
    until(LIMIT, "what has expired", async || left(&world).await == (4, 3)).await;
    let replay = async |key: &str, policy: &Policy| {
        matches!(world.request(("alice", key, "a"), policy).await.unwrap(), Claim::Replay(_))
    };
    assert!(replay("nearly 24 hours", &policy()).await);
    assert!(replay("nearly 72 hours", &long).await);
    assert!(replay("nearly 72 hours, gone", &gone).await);
    let tombstone = world.request(("alice", "72 hours, gone", "a"), &gone).await.unwrap();
    assert_eq!(tombstone, Claim::Gone);
    world.shift("1 minute").await;
    until(LIMIT, "what expires now", async || left(&world).await == (2, 0)).await;
    world.shift("239 hours 59 minutes").await;
    until(LIMIT, "the first tombstone", async || left(&world).await == (1, 0)).await;
    world.shift("1 minute").await;
    until(LIMIT, "the other one", async || left(&world).await == (0, 0)).await;
    running.stop().await;
}

#[tokio::test]
async fn no_two_pruners_of_requests_work_at_the_same_moment_and_one_goes_on() {
    let world = World::new().await;
    for number in 0..30 {
        request(&world, &number.to_string(), &policy()).await;
    }
    world.shift("25 hours").await;
    let (mut one, mut two) = (world.database.connect().await, world.database.connect().await);
    let tx = one.transaction().await.unwrap();
    let lock = "select pg_advisory_xact_lock(hashtext('walpost idempotency retention'), \
                hashtext('walpost'))";
    tx.execute(lock, &[]).await.unwrap();
    let pass = pruner().pass(&mut two).await.unwrap();
    assert!(pass.yielded && pass.pruned == Pruned::default(), "{pass:?}");
    assert_eq!(left(&world).await, (30, 30));
    // Another schema is no business of theirs.
    let elsewhere = pruner().idempotency(Idempotency::in_schema("elsewhere"));
    let missing = elsewhere.pass(&mut two).await.unwrap_err();
    assert!(matches!(missing, Error::NotMigrated { .. }), "{missing:?}");
    tx.rollback().await.unwrap();
    let quick = pruner().pause(Duration::ZERO);
    let (first, second) = tokio::join!(quick.pass(&mut one), quick.pass(&mut two));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(!first.yielded || !second.yielded, "{first:?} {second:?}");
    assert_eq!(first.pruned.rows + second.pruned.rows, 30, "{first:?} {second:?}");
    assert_eq!(left(&world).await, (0, 0));
}

// One thread, which has the recorder.
#[tokio::test]
async fn what_goes_wrong_with_pruning_requests_is_counted_and_tried_again() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _measured = metrics::set_default_local_recorder(&recorder);
    let world = World::new().await;
    request(&world, "new", &policy()).await;
    request(&world, "gone", &policy().after_expiry(AfterExpiry::Gone)).await;
    world.shift("24 hours").await;
    let user = unique_name("janitor");
    let create = format!("create role {user} login password 'x'");
    world.client.batch_execute(&create).await.unwrap();
    let running = Running::start(&world, pruner(), Some(&user));
    let failed = "walpost_idempotency_prune_failures_total{schema=\"walpost\"} 2";
    until(LIMIT, "two failures", async || metrics.render().contains(failed)).await;
    let grant = format!("select walpost.idempotency_grant('pruner', '{user}')");
    world.client.batch_execute(&grant).await.unwrap();
    until(LIMIT, "what has expired", async || left(&world).await == (1, 0)).await;
    // Rows leave before they are counted.
    for counted in [
        "walpost_idempotency_pruned_responses_total{schema=\"walpost\"} 1\n",
        "walpost_idempotency_pruned_rows_total{schema=\"walpost\"} 1\n",
    ] {
        until(LIMIT, counted, async || metrics.render().contains(counted)).await;
    }
    running.stop().await;
}

#[tokio::test]
async fn a_pruner_of_requests_says_before_what_it_lacks() {
    let world = World::new().await;
    request(&world, "k", &policy()).await;
    world.shift("25 hours").await;
    let reader = role(&world, "reader", "").await;
    let denied = pruner().check(&reader).await.unwrap_err();
    assert!(denied.to_string().contains("idempotency_grant('pruner'"), "{denied}");
    pruner().check(&role(&world, "pruner", "").await).await.unwrap();
    assert_eq!(left(&world).await, (1, 1), "nothing was changed");
}
