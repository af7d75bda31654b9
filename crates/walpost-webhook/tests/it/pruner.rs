//! Retention by itself: deliveries whose times are shifted leave beside whatever
//! else goes on, and nothing goes wrong for good.

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::{sync::oneshot, task::JoinHandle};
use walpost_postgres::Database;
use walpost_testkit::{unique_name, until};
use walpost_webhook::{Deliveries, DeliveryState, Prune, Pruned, Pruner, StoreError};

use crate::{
    operating::plant,
    world::{LIMIT, World, ids},
};

/// One that looks once a second.
fn pruner() -> Pruner {
    Pruner::new(Prune::default().batch_rows(2)).every(Duration::from_secs(1))
}

/// As the owner or in a role.
fn database(world: &World, role: Option<&str>) -> Database {
    let url = world.database.url();
    let start = if url.contains('?') { '&' } else { '?' };
    let url = role.map_or(url.to_owned(), |role| format!("{url}{start}options=-c%20role%3D{role}"));
    Database::parse(&url).unwrap()
}

struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    fn start(database: Database) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            pruner().run(|| database.connect(), async { drop(stopped.await) }).await;
        });
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }
}

/// As time would: deliveries of these events are in a state since then.
async fn since(world: &World, state: DeliveryState, events: &[(&str, &str)]) {
    world.insert(&events.iter().map(|(id, _)| (*id).to_owned()).collect::<Vec<_>>()).await;
    for (event_id, ago) in events {
        plant(world, event_id, state).await;
        let sql = format!(
            "update walpost.webhook_delivery set created_at = now() - interval '{ago}', \
             finished_at = case when finished_at is null then null \
             else now() - interval '{ago}' end where event_id = '{event_id}'"
        );
        world.past_triggers(&sql).await;
    }
}

/// Events in the first table, and in the archive.
async fn places(world: &World) -> [Vec<String>; 2] {
    let events = async |table: &str| {
        world.texts(&format!("select event_id from walpost.{table} order by event_id")).await
    };
    [events("webhook_delivery").await, events("webhook_archive").await]
}

#[tokio::test]
async fn with_a_shifted_clock_deliveries_move_by_themselves_at_30_days_and_leave_at_a_year() {
    let world = World::new().await;
    let ages = [
        ("a", "30 days -1 minute"),
        ("b", "30 days"),
        ("c", "365 days -1 minute"),
        ("d", "365 days"),
    ];
    since(&world, DeliveryState::Delivered, &ages).await;
    // However old: nothing of what has not arrived.
    for state in DeliveryState::OPEN {
        since(&world, state, &[(&format!("open {state}"), "9 years")]).await;
    }
    let open = "select md5(string_agg(d::text, ' ' order by id)) \
                from walpost.webhook_delivery d where event_id like 'open %'";
    let before = world.texts(open).await;
    let running = Running::start(database(&world, None));
    let old = "select count(*) from walpost.webhook_archive where event_id in ('b', 'c')";
    let gone = "select count(*) from walpost.webhook_archive where event_id = 'd'";
    let moved = async || world.number(old).await == 2 && world.number(gone).await == 0;
    until(LIMIT, "what is old enough", moved).await;
    let [first, archive] = places(&world).await;
    assert_eq!(first.iter().filter(|id| !id.starts_with("open")).collect::<Vec<_>>(), ["a"]);
    assert_eq!(archive, ["b", "c"]);
    let minute = "set finished_at = finished_at - interval '1 minute'";
    let shift = format!(
        "update walpost.webhook_delivery {minute}; update walpost.webhook_archive {minute}"
    );
    world.past_triggers(&shift).await;
    let moved = async || places(&world).await[1] == ["a", "b"];
    until(LIMIT, "what has got old enough", moved).await;
    running.stop().await;
    assert_ne!(world.texts(open).await, before, "only their times were shifted");
    let back = "update walpost.webhook_delivery \
                set finished_at = finished_at + interval '1 minute'";
    world.past_triggers(back).await;
    assert_eq!(world.texts(open).await, before, "nothing else has changed");
}

#[tokio::test]
async fn no_two_pruners_of_deliveries_work_at_the_same_moment_and_one_goes_on() {
    let world = World::new().await;
    world.insert(&ids("a", 60)).await;
    let arrived = "update walpost.webhook_delivery set state = 'delivered', \
                   next_attempt_at = null, finished_at = now() - interval '31 days', fence = 1";
    world.past_triggers(arrived).await;
    let (mut one, mut two) = (world.database.connect().await, world.database.connect().await);
    let tx = one.transaction().await.unwrap();
    let lock = "select pg_advisory_xact_lock(hashtext('walpost webhook retention'), \
                hashtext('walpost'))";
    tx.execute(lock, &[]).await.unwrap();
    let pass = pruner().pass(&mut two).await.unwrap();
    assert!(pass.yielded && pass.pruned == Pruned::default(), "{pass:?}");
    assert_eq!(places(&world).await[1], [""; 0]);
    // Another schema is no business of theirs.
    let elsewhere = pruner().deliveries(Deliveries::in_schema("elsewhere"));
    let missing = elsewhere.pass(&mut two).await.unwrap_err();
    assert!(matches!(missing, StoreError::NotMigrated { .. }), "{missing:?}");
    tx.rollback().await.unwrap();
    let quick = pruner().pause(Duration::ZERO);
    let (first, second) = tokio::join!(quick.pass(&mut one), quick.pass(&mut two));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(!first.yielded || !second.yielded, "{first:?} {second:?}");
    assert_eq!(first.pruned.archived + second.pruned.archived, 60, "{first:?} {second:?}");
    assert_eq!(places(&world).await, [vec![], ids("a", 60)]);
}

// One thread, which has the recorder.
#[tokio::test]
async fn what_goes_wrong_with_pruning_deliveries_is_counted_and_tried_again() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _measured = metrics::set_default_local_recorder(&recorder);
    let world = World::new().await;
    since(&world, DeliveryState::Delivered, &[("a", "31 days"), ("b", "366 days")]).await;
    let user = unique_name("janitor");
    world.client.batch_execute(&format!("create role {user}")).await.unwrap();
    let running = Running::start(database(&world, Some(&user)));
    let failed = "walpost_webhook_prune_failures_total{schema=\"walpost\"} 2";
    until(LIMIT, "two failures", async || metrics.render().contains(failed)).await;
    let janitor = database(&world, Some(&user)).connect().await.unwrap();
    let denied = pruner().check(&janitor).await.unwrap_err();
    assert!(denied.to_string().contains("webhook_grant('pruner'"), "{denied}");
    let grant = format!("select walpost.webhook_grant('pruner', '{user}')");
    world.client.batch_execute(&grant).await.unwrap();
    until(LIMIT, "what is old", async || places(&world).await == [vec![], ids_of(&["a"])]).await;
    // Rows leave before they are counted.
    for counted in [
        "walpost_webhook_archived_total{schema=\"walpost\"} 2\n",
        "walpost_webhook_deleted_total{schema=\"walpost\"} 1\n",
    ] {
        until(LIMIT, counted, async || metrics.render().contains(counted)).await;
    }
    running.stop().await;
    pruner().check(&janitor).await.unwrap();
}

fn ids_of(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}
