//! What an exporter shows: exact figures after known loads.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use rdkafka::mocking::MockCluster;
use tokio::sync::oneshot;
use walpost_consumer::{
    Event, Handler, HandlerError, PartitionState, RetrySchedule, SliceError,
    tokio_postgres::Transaction,
};
use walpost_testkit as testkit;

use crate::{
    fence::claim,
    support::{Ask, Effects, LIMIT, World, each, effect, ids, now_ms, run},
};

const LAG: &str = "walpost_consumer_lag_events";
const AGE: &str = "walpost_consumer_log_end_age_seconds";

/// What an exporter shows of the consumers of this thread.
pub(crate) struct Shown {
    handle: PrometheusHandle,
    _guard: metrics::LocalRecorderGuard<'static>,
}

impl Shown {
    pub(crate) fn begin() -> Self {
        let recorder = Box::leak(Box::new(PrometheusBuilder::new().build_recorder()));
        let handle = recorder.handle();
        Self { handle, _guard: metrics::set_default_local_recorder(recorder) }
    }

    fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        sum(&self.handle, name, labels)
    }

    pub(crate) async fn until(&self, name: &str, labels: &[&str], wanted: impl Fn(f64) -> bool) {
        until(&self.handle, name, labels, wanted).await;
    }
}

/// Over all series of a metric that have these labels.
fn sum(handle: &PrometheusHandle, name: &str, labels: &[&str]) -> f64 {
    let text = handle.render();
    let series = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (found, of) = series.split_once('{')?;
        let fits = found == name && labels.iter().all(|label| of.contains(label));
        fits.then(|| value.parse::<f64>().unwrap())
    });
    series.sum()
}

async fn until(
    handle: &PrometheusHandle,
    name: &str,
    labels: &[&str],
    wanted: impl Fn(f64) -> bool,
) {
    let what = format!("{name} {labels:?}");
    testkit::until(LIMIT, &what, async || wanted(sum(handle, name, labels))).await;
}

#[tokio::test]
async fn the_figures_are_exact_after_a_known_load() {
    let shown = Shown::begin();
    let world = World::new(2).await;
    world.publish(0, ids("a", 30)).await;
    world.publish(1, ids("b", 20)).await;
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(50).await;
    world.publish(1, ids("a", 7)).await;
    running.until("copies", |status| status.counts.duplicates == 7).await;
    let of = [&format!("topic=\"{}\"", world.topic)[..], &format!("consumer=\"{}\"", world.name)];
    let exact = [
        ("walpost_consumer_applied_total", 50.0),
        ("walpost_consumer_duplicates_total", 7.0),
        ("walpost_consumer_batch_events_sum", 57.0),
        ("walpost_consumer_epoch_conflicts_total", 0.0),
        ("walpost_consumer_failures_total", 0.0),
    ];
    for (name, expected) in exact {
        assert_eq!(shown.sum(name, &of), expected, "{name}");
    }
    assert!(shown.sum("walpost_consumer_claims_total", &of) >= 2.0, "one for each partition");
    for partition in ["partition=\"0\"", "partition=\"1\""] {
        shown.until(LAG, &[partition], |lag| lag == 0.0).await;
        shown.until("walpost_consumer_lag_seconds", &[partition], |lag| lag == 0.0).await;
    }
    shown.until("walpost_consumer_partitions", &["state=\"running\""], |count| count == 2.0).await;
    let text = shown.handle.render();
    let described = "# HELP walpost_consumer_lag_seconds Age of the event that is next";
    assert!(text.contains(described), "{text}");
    assert!(text.contains("walpost_consumer_lag_events{"), "{text}");
    running.stop().await.unwrap();
    assert_eq!(shown.sum("walpost_consumer_partitions", &[]), 0.0);
}

/// Fails while it is told to, in a way that counts as no attempt.
fn stoppable(stopped: &Arc<AtomicBool>) -> impl Handler + use<> {
    let stopped = Arc::clone(stopped);
    Ask(move |_: &Event| match stopped.load(Ordering::Relaxed) {
        true => Err(HandlerError::transient("told to stop")),
        false => Ok(()),
    })
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn the_lag_grows_behind_a_handler_that_stopped_and_is_gone_when_it_goes_on() {
    let shown = Shown::begin();
    let world = World::new(1).await;
    let stopped = Arc::new(AtomicBool::new(true));
    let handler = stoppable(&stopped);
    // What is read ahead is far less than what comes.
    let small = world.consumer().max_batch_events(5).kafka("queued.min.messages", "10");
    let mut running = run(small.handler(handler).unwrap());
    running.until_running(1).await;
    world.publish_at(0, now_ms() - 3_600_000, ids("a", 10)).await;
    shown.until(LAG, &[], |lag| lag == 10.0).await;
    shown.until("walpost_consumer_lag_seconds", &[], |age| (3_600.0..3_700.0).contains(&age)).await;
    world.publish(0, ids("b", 990)).await;
    shown.until(LAG, &[], |lag| lag == 1_000.0).await;
    let age = shown.sum("walpost_consumer_lag_seconds", &[]);
    shown.until("walpost_consumer_lag_seconds", &[], |later| later > age).await;
    assert_eq!(shown.sum("walpost_consumer_applied_total", &[]), 0.0);
    stopped.store(false, Ordering::Relaxed);
    running.until_applied(1_000).await;
    shown.until(LAG, &[], |lag| lag == 0.0).await;
    shown.until("walpost_consumer_lag_seconds", &[], |age| age == 0.0).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn markers_of_transactions_behind_the_last_event_are_no_lag() {
    let shown = Shown::begin();
    let world = World::new(1).await;
    world.publish(0, ids("a", 3)).await;
    world.publish_in_transaction(0, "b0").await;
    let mut running = run(world.consumer().handler(Effects).unwrap());
    running.until_applied(4).await;
    // Set again and again, after all was applied.
    testkit::until(LIMIT, "no lag of what is known for long", async || {
        shown.sum(LAG, &[]) == 0.0 && shown.sum(AGE, &[]) > 2.0
    })
    .await;
    assert_eq!(world.stored().await, 4, "the marker is at 4, and the log ends at 5");
    world.publish_in_transaction(0, "b1").await;
    running.until_applied(5).await;
    shown.until(AGE, &[], |age| age < 1.0).await;
    testkit::until(LIMIT, "no lag of what is known for long", async || {
        shown.sum(LAG, &[]) == 0.0 && shown.sum(AGE, &[]) > 2.0
    })
    .await;
    assert_eq!(shown.sum("walpost_consumer_lag_seconds", &[]), 0.0);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn lanes_tell_the_lag_of_the_oldest_event_that_is_open() {
    let shown = Shown::begin();
    let world = World::new(1).await;
    let stopped = Arc::new(AtomicBool::new(true));
    let by_key = Arc::clone(&stopped);
    let handler = Ask(move |event: &Event| {
        match event.key() == Some(b"slow") && by_key.load(Ordering::Relaxed) {
            true => Err(HandlerError::transient("told to stop")),
            false => Ok(()),
        }
    });
    world.publish_at(0, now_ms() - 7_200_000, ["a0"]).await;
    let events: Vec<(String, String)> = (0..20)
        .map(|n| (if n == 3 { "slow".to_owned() } else { format!("k{n}") }, format!("e{n}")))
        .collect();
    let events: Vec<(&str, &str)> =
        events.iter().map(|(key, id)| (key.as_str(), id.as_str())).collect();
    world.publish_keyed(0, &events).await;
    let mut running = run(world.consumer().lanes(4).handler(handler).unwrap());
    shown.until(LAG, &[], |lag| lag == 17.0).await;
    let age = shown.sum("walpost_consumer_lag_seconds", &[]);
    assert!(age < 3_600.0, "the older one is done: {age}");
    shown.until("walpost_consumer_lag_seconds", &[], |later| later > age).await;
    stopped.store(false, Ordering::Relaxed);
    running.until_applied(21).await;
    shown.until(LAG, &[], |lag| lag == 0.0).await;
    running.stop().await.unwrap();
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn while_kafka_is_away_the_lag_stays_and_what_is_known_ages() {
    let shown = Shown::begin();
    let world = World::new(1).await;
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(&world.topic, 1, 1).unwrap();
    let world = world.at(&cluster.bootstrap_servers());
    world.publish(0, ids("a", 10)).await;
    let stopped = Arc::new(AtomicBool::new(true));
    let consumer = world.consumer().session_timeout_ms(20_000);
    let running = run(consumer.handler(stoppable(&stopped)).unwrap());
    shown.until(LAG, &[], |lag| lag == 10.0).await;
    cluster.broker_down(1).unwrap();
    shown.until(AGE, &[], |age| age > 10.0).await;
    assert_eq!(shown.sum(LAG, &[]), 10.0);
    assert!(shown.sum("walpost_consumer_lag_seconds", &[]) > 10.0);
    // The session has ended, and it may be another member's.
    shown.until(LAG, &[], |lag| lag == 0.0).await;
    assert!(shown.sum(AGE, &[]) > 10.0, "that it is unknown is told: {}", shown.handle.render());
    cluster.broker_up(1).unwrap();
    shown.until(LAG, &[], |lag| lag == 10.0).await;
    shown.until(AGE, &[], |age| age < 6.0).await;
    stopped.store(false, Ordering::Relaxed);
    shown.until(LAG, &[], |lag| lag == 0.0).await;
    running.stop().await.unwrap();
}

/// A member on a thread of its own, with an exporter of its own.
struct Member {
    handle: PrometheusHandle,
    stop: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Member {
    async fn start(world: &World, handler: impl Handler) -> Self {
        let consumer = world.consumer().handler(handler).unwrap();
        let (stop, stopped) = oneshot::channel();
        let (sender, handle) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let shown = Shown::begin();
                let _ = sender.send(shown.handle.clone());
                let running = run(consumer);
                let _ = stopped.await;
                running.stop().await.unwrap();
            });
        });
        Self { handle: handle.await.unwrap(), stop, thread }
    }

    async fn stop(self) {
        let _ = self.stop.send(());
        tokio::task::spawn_blocking(move || self.thread.join().unwrap()).await.unwrap();
    }
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn a_partition_that_moves_counts_at_one_member_alone() {
    let world = World::new(2).await;
    world.publish(0, ids("a", 10)).await;
    world.publish(1, ids("b", 10)).await;
    let stopped = Arc::new(AtomicBool::new(true));
    let first = Member::start(&world, stoppable(&stopped)).await;
    until(&first.handle, LAG, &[], |lag| lag == 20.0).await;
    let second = Member::start(&world, stoppable(&stopped)).await;
    until(&second.handle, LAG, &[], |lag| lag == 10.0).await;
    until(&first.handle, LAG, &[], |lag| lag == 10.0).await;
    let moved = |handle: &PrometheusHandle| sum(handle, LAG, &["partition=\"0\""]);
    assert_eq!(moved(&first.handle) + moved(&second.handle), 10.0);
    second.stop().await;
    until(&first.handle, LAG, &[], |lag| lag == 20.0).await;
    stopped.store(false, Ordering::Relaxed);
    until(&first.handle, LAG, &[], |lag| lag == 0.0).await;
    first.stop().await;
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn a_transaction_of_an_owner_that_is_none_any_more_is_counted() {
    let shown = Shown::begin();
    let world = World::new(1).await;
    world.publish(0, ids("a", 40)).await;
    let failed = AtomicBool::new(false);
    let handler = Ask(move |_: &Event| match failed.swap(true, Ordering::Relaxed) {
        true => Ok(()),
        false => Err(HandlerError::retry("not yet")),
    });
    // Long enough to claim before the next transaction.
    let pause = RetrySchedule::new([Duration::from_secs(10)]).repeating_last();
    let consumer = world.consumer().max_batch_events(1).retry_schedule(pause);
    let mut running = run(consumer.handler(handler).unwrap());
    running
        .until("a failed attempt", |status| {
            let retries = |state: &PartitionState| matches!(state, PartitionState::Retrying);
            status.partitions.values().any(|partition| retries(&partition.state))
        })
        .await;
    claim(&world.client).await;
    running.until_applied(40).await;
    assert_eq!(shown.sum("walpost_consumer_epoch_conflicts_total", &[]), 1.0);
    assert!(shown.sum("walpost_consumer_claims_total", &[]) >= 2.0);
    running.stop().await.unwrap();
    assert_eq!(world.effects().await, each(&ids("a", 40), 1));
}

/// Counts its calls; one event of all is refused.
struct Counting(Arc<AtomicU64>);

impl Handler for Counting {
    async fn handle(&self, tx: &Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
        self.handle_slice(tx, std::slice::from_ref(event)).await.map_err(SliceError::into_inner)
    }

    async fn handle_slice(&self, tx: &Transaction<'_>, events: &[Event]) -> Result<(), SliceError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        for event in events {
            effect(tx, event).await?;
        }
        match events.iter().any(|event| event.id() == "a13") {
            true => Err(HandlerError::retry("no customer").into()),
            false => Ok(()),
        }
    }
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn every_call_of_the_handler_is_timed_and_what_is_parked_is_told() {
    const OPEN: &str = "walpost_consumer_parked_open_events";
    const HELD: &str = "walpost_consumer_parked_held_events";
    let shown = Shown::begin();
    let world = World::new(1).await;
    world.publish(0, ids("a", 32)).await;
    let calls = Arc::new(AtomicU64::new(0));
    let consumer = world.consumer().max_attempts(3).park(walpost_consumer::Park::Key);
    let mut running = run(consumer.handler(Counting(Arc::clone(&calls))).unwrap());
    running.until("a parked event", |status| status.counts.parked == 1).await;
    running.until("those behind it", |status| status.counts.waiting == 18).await;
    let counted = calls.load(Ordering::Relaxed);
    assert!(counted > 3, "it was looked for: {counted}");
    let timed = shown.sum("walpost_consumer_handler_seconds_count", &[]);
    assert_eq!(timed, counted as f64);
    assert!(shown.sum("walpost_consumer_handler_seconds_sum", &[]) > 0.0);
    shown.until(OPEN, &[], |count| count == 1.0).await;
    shown.until(HELD, &[], |count| count == 18.0).await;
    let ask = "select count(*) from walpost.request_parked(\
               (select array_agg(id) from walpost.consumer_parked), 'discard', 'test')";
    assert_eq!(world.number(ask).await, 19);
    shown.until(OPEN, &[], |count| count == 0.0).await;
    shown.until(HELD, &[], |count| count == 0.0).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_halted_partition_is_told_and_its_lag_goes_on() {
    let shown = Shown::begin();
    let world = World::new(2).await;
    world.publish(0, ids("a", 3)).await;
    let handler = Ask(|event: &Event| match event.id() {
        "a1" => Err(HandlerError::halt("look at this")),
        _ => Ok(()),
    });
    let mut running = run(world.consumer().handler(handler).unwrap());
    running.until_halted().await;
    let halted = ["state=\"halted\""];
    shown.until("walpost_consumer_partitions", &halted, |count| count == 1.0).await;
    world.publish(0, ids("b", 4)).await;
    shown.until(LAG, &["partition=\"0\""], |lag| lag == 7.0).await;
    running.stop().await.unwrap();
    assert_eq!(shown.sum("walpost_consumer_partitions", &halted), 0.0);
    assert_eq!(shown.sum(LAG, &[]), 0.0);
}
