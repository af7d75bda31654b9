//! Retention by itself: rows whose times are shifted leave beside whatever else
//! goes on, and nothing goes wrong for good.

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::{sync::oneshot, task::JoinHandle};
use tokio_postgres::{Client, NoTls};
use walpost_inbox::{Error, Inbox, Prune, Pruned, Pruner, State};
use walpost_testkit::{unique_name, until};

use crate::{
    grants::role,
    support::{LIMIT, World},
};

/// A pruner that looks once a second.
fn pruner() -> Pruner {
    Pruner::new(Prune::new(30, 90).batch_rows(2)).every(Duration::from_secs(1))
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

/// Events that are done, so long ago; their numbers.
async fn done(world: &World, ages: &[&str]) -> Vec<i64> {
    let mut numbers = Vec::new();
    for (index, ago) in ages.iter().enumerate() {
        let state = [State::Succeeded, State::Ignored][index % 2];
        let number = world.plant(state).await;
        let sql = format!(
            "update walpost.inbox set processed_at = now() - interval '{ago}' where seq = {number}"
        );
        world.past_triggers(&sql).await;
        numbers.push(number);
    }
    numbers
}

/// Numbers of those that are left, and of those with a payload.
async fn left(world: &World) -> [Vec<i64>; 2] {
    let mut left = [Vec::new(), Vec::new()];
    let sql = "select seq, has_payload from walpost.inbox order by seq";
    for row in world.client.query(sql, &[]).await.unwrap() {
        left[0].push(row.get(0));
        left[1].extend(row.get::<_, bool>(1).then(|| row.get::<_, i64>(0)));
    }
    left
}

#[tokio::test]
async fn with_a_shifted_clock_payloads_leave_by_themselves_at_30_days_and_rows_at_90() {
    let world = World::new().await;
    let ages = ["30 days -1 minute", "30 days", "90 days -1 minute", "90 days"];
    let all = done(&world, &ages).await;
    let open = [
        world.plant(State::Pending).await,
        world.plant(State::Processing).await,
        world.plant(State::Failed).await,
        world.plant(State::Review).await,
    ];
    let old = "update walpost.inbox set received_at = now() - interval '9 years'";
    world.past_triggers(old).await;
    let running = Running::start(&world, pruner(), None);
    let stay = |done: &[i64]| [done, &open[..]].concat();
    let first = [stay(&all[..3]), stay(&all[..1])];
    until(LIMIT, "what is old enough", async || left(&world).await == first).await;
    let minute = "update walpost.inbox set processed_at = processed_at - interval '1 minute'";
    world.past_triggers(minute).await;
    let second = [stay(&all[..2]), stay(&[])];
    until(LIMIT, "what has got old enough", async || left(&world).await == second).await;
    running.stop().await;
}

#[tokio::test]
async fn no_two_pruners_work_at_the_same_moment_and_one_goes_on() {
    let world = World::new().await;
    done(&world, &["91 days"; 60]).await;
    let (mut one, mut two) = (world.database.connect().await, world.database.connect().await);
    let tx = one.transaction().await.unwrap();
    let lock = "select pg_advisory_xact_lock(hashtext('walpost inbox retention'), \
                hashtext('walpost'))";
    tx.execute(lock, &[]).await.unwrap();
    let pass = pruner().pass(&mut two).await.unwrap();
    assert!(pass.yielded && pass.pruned == Pruned::default(), "{pass:?}");
    assert_eq!(world.number("select count(*) from walpost.inbox").await, 60);
    // Another schema is no business of theirs.
    let elsewhere = pruner().inbox(Inbox::in_schema("elsewhere"));
    let missing = elsewhere.pass(&mut two).await.unwrap_err();
    assert!(matches!(missing, Error::NotMigrated { .. }), "{missing:?}");
    tx.rollback().await.unwrap();
    let quick = pruner().pause(Duration::ZERO);
    let (first, second) = tokio::join!(quick.pass(&mut one), quick.pass(&mut two));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(!first.yielded || !second.yielded, "{first:?} {second:?}");
    assert_eq!(first.pruned.rows + second.pruned.rows, 60, "{first:?} {second:?}");
    assert_eq!(world.number("select count(*) from walpost.inbox").await, 0);
}

#[tokio::test]
async fn who_meets_another_on_its_way_says_what_has_left() {
    let world = World::new().await;
    done(&world, &["91 days"; 60]).await;
    let (one, mut two) = (world.database.connect().await, world.database.connect().await);
    let slow = pruner().pause(Duration::from_millis(200));
    let passing = async { slow.pass(&mut two).await.unwrap() };
    let meeting = async {
        let payloads = "select count(*) from walpost.inbox where not has_payload";
        until(LIMIT, "a first batch", async || world.number(payloads).await > 0).await;
        // Behind a transaction of the pruner, and so in a pause.
        let lock = "select pg_advisory_lock(hashtext('walpost inbox retention'), \
                    hashtext('walpost'))";
        one.execute(lock, &[]).await.unwrap();
    };
    let (pass, ()) = tokio::join!(passing, meeting);
    let payloads = world.number("select count(*) from walpost.inbox where not has_payload").await;
    assert!(pass.yielded && (1..60).contains(&payloads), "{pass:?} {payloads}");
    assert_eq!((pass.pruned.payloads, pass.pruned.rows), (payloads.unsigned_abs(), 0));
}

// One thread, which has the recorder.
#[tokio::test]
async fn what_goes_wrong_with_pruning_is_counted_and_tried_again() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _measured = metrics::set_default_local_recorder(&recorder);
    let world = World::new().await;
    done(&world, &["31 days", "91 days"]).await;
    let user = unique_name("janitor");
    let create = format!("create role {user} login password 'x'");
    world.client.batch_execute(&create).await.unwrap();
    let running = Running::start(&world, pruner(), Some(&user));
    let failed = "walpost_inbox_prune_failures_total{schema=\"walpost\"} 2";
    until(LIMIT, "two failures", async || metrics.render().contains(failed)).await;
    let grant = format!("select walpost.inbox_grant('pruner', '{user}')");
    world.client.batch_execute(&grant).await.unwrap();
    until(LIMIT, "what is old", async || {
        world.number("select count(*) from walpost.inbox").await == 1
    })
    .await;
    // Rows leave before they are counted.
    for counted in [
        "walpost_inbox_pruned_payloads_total{schema=\"walpost\"} 2\n",
        "walpost_inbox_pruned_rows_total{schema=\"walpost\"} 1\n",
    ] {
        until(LIMIT, counted, async || metrics.render().contains(counted)).await;
    }
    running.stop().await;
}

#[tokio::test]
async fn a_pruner_says_before_what_it_lacks() {
    let world = World::new().await;
    let numbers = done(&world, &["91 days"]).await;
    let reader = role(&world, "reader", "").await;
    let denied = pruner().check(&reader).await.unwrap_err();
    assert!(denied.to_string().contains("inbox_grant('pruner'"), "{denied}");
    let janitor = role(&world, "pruner", "").await;
    pruner().check(&janitor).await.unwrap();
    let short = Pruner::new(Prune::new(30, 89)).check(&janitor).await.unwrap_err();
    assert!(matches!(short, Error::Window { keep_days: 89, .. }), "{short:?}");
    assert_eq!(left(&world).await, [numbers.clone(), numbers], "nothing was changed");
}

#[tokio::test]
async fn a_window_that_somebody_has_locked_holds_up_no_pruner() {
    let world = World::new().await;
    let numbers = done(&world, &["91 days"]).await;
    let (mut owner, mut other) = (world.database.connect().await, world.database.connect().await);
    let tx = owner.transaction().await.unwrap();
    tx.batch_execute("lock table walpost.inbox_window").await.unwrap();
    let pass = tokio::time::timeout(LIMIT, async { pruner().pass(&mut other).await }).await;
    let gave_up = pass.expect("an end by itself").unwrap_err();
    assert!(gave_up.to_string().contains("55P03"), "{gave_up:?}");
    assert_eq!(left(&world).await, [numbers.clone(), numbers]);
    tx.rollback().await.unwrap();
    let pass = pruner().pass(&mut other).await.unwrap();
    assert_eq!((pass.pruned.payloads, pass.pruned.rows), (1, 1));
}
