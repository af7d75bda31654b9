//! A destination that is away is left alone, and probed by one delivery at a time.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::{io::AsyncWriteExt, sync::Semaphore};
use walpost_testkit::until;
use walpost_webhook::{Breaker, NewDelivery, ProcessorSettings, RetryPolicy, Schedule};

use crate::{
    receiver::{Receiver, answer},
    world::{LIMIT, World, delivery, ids, run, settings},
};

/// Whether that stands where operators look.
async fn is_listed_open(world: &World) -> bool {
    let all = world.deliveries.destinations(&world.client).await.unwrap();
    all[0].breaker_open_until.is_some_and(|until| until > std::time::SystemTime::now())
}

const ATTEMPTS: &str = "select sum(attempts)::int8 from walpost.webhook_delivery";

/// The one recorder of this process.
fn recorder() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder).unwrap();
        handle
    })
}

/// The gauge of a destination.
fn is_open(destination: &str) -> bool {
    let line = format!("walpost_webhook_breaker_open{{destination=\"{destination}\"}} ");
    let text = recorder().render();
    let value = text.lines().find_map(|one| one.strip_prefix(&*line)).expect("a gauge");
    value.parse::<f64>().unwrap() == 1.0
}

/// A receiver that is ill until it is told to be well, and what it has at a time.
struct Patient {
    receiver: Receiver,
    is_well: Arc<AtomicBool>,
    /// One permit for each answer.
    gate: Arc<Semaphore>,
    under_way: Arc<AtomicUsize>,
}

impl Patient {
    async fn new() -> Self {
        let (is_well, under_way) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let gate = Arc::new(Semaphore::new(0));
        let (well, count, open) = (Arc::clone(&is_well), Arc::clone(&under_way), Arc::clone(&gate));
        let receiver = Receiver::scripted(move |mut stream, notes| {
            let (well, count, open) = (Arc::clone(&well), Arc::clone(&count), Arc::clone(&open));
            async move {
                while notes.read(&mut stream).await? {
                    count.fetch_add(1, Ordering::SeqCst);
                    open.acquire().await.unwrap().forget();
                    count.fetch_sub(1, Ordering::SeqCst);
                    let status = if well.load(Ordering::SeqCst) { "200 OK" } else { "500 Oops" };
                    stream.write_all(answer(status, "", "").as_bytes()).await?;
                }
                Ok(())
            }
        })
        .await;
        Self { receiver, is_well, gate, under_way }
    }

    fn calls(&self) -> usize {
        self.receiver.requests().len()
    }
}

fn breaking(name: &str, patient: &Patient) -> ProcessorSettings {
    let mut settings = settings(&patient.receiver.url("127.0.0.1"));
    name.clone_into(&mut settings.name);
    settings.policy = RetryPolicy::new(Schedule::fixed(Duration::from_millis(10), 10_000));
    let (wait, wait_max) = (Duration::from_millis(50), Duration::from_millis(100));
    settings.breaker = Some(Breaker { failures: 1, wait, wait_max });
    settings.client.timeout = LIMIT;
    settings.lease = LIMIT * 3;
    settings.pace.concurrency = 8;
    settings
}

async fn insert(world: &World, name: &str, count: usize) {
    let to = |id: &String| NewDelivery { destination: name.to_owned(), ..delivery(id) };
    let new: Vec<NewDelivery> = ids("a", count).iter().map(to).collect();
    assert_eq!(world.deliveries.insert(&world.client, &new).await.unwrap(), count as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_breaker_claims_nothing_and_sends_one_probe_at_a_time() {
    recorder();
    let (world, patient) = (World::new().await, Patient::new().await);
    insert(&world, "ill", 40).await;
    let running = run(&world, breaking("ill", &patient));
    // Eight in their calls, as many claimed ahead.
    until(LIMIT, "eight calls", async || patient.under_way.load(Ordering::SeqCst) == 8).await;
    world.until("sending", 16).await;
    assert!(!is_open("ill"));
    patient.gate.add_permits(8);
    // The first of them that fails opens it, and nothing else begins but probes.
    until(LIMIT, "a probe", async || patient.calls() == 9).await;
    world.until("sending", 1).await;
    until(LIMIT, "its line in the list", async || is_listed_open(&world).await).await;
    for _ in 0..5 {
        let calls = patient.calls();
        // However often the processor looks after what it has.
        for _ in 0..2 {
            world.asked("with place").await;
        }
        assert_eq!((patient.calls(), patient.under_way.load(Ordering::SeqCst)), (calls, 1));
        assert_eq!(world.number(ATTEMPTS).await, calls as i64, "nothing else is counted");
        patient.gate.add_permits(1);
        until(LIMIT, "the next probe", async || patient.calls() == calls + 1).await;
        assert!(is_open("ill"));
    }
    patient.is_well.store(true, Ordering::SeqCst);
    patient.gate.add_permits(1_000);
    world.until("delivered", 40).await;
    assert!(!is_open("ill"));
    until(LIMIT, "its line is gone", async || !is_listed_open(&world).await).await;
    let snapshot = running.stop().await;
    assert!(snapshot.given_back > 0, "{snapshot:?}");
    assert_eq!(world.number(ATTEMPTS).await, patient.calls() as i64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_refuses_single_deliveries_is_not_away() {
    recorder();
    let world = World::new().await;
    let receiver = Receiver::answering(answer("400 Bad Request", "", "")).await;
    insert(&world, "picky", 30).await;
    let mut settings = settings(&receiver.url("127.0.0.1"));
    "picky".clone_into(&mut settings.name);
    settings.policy = RetryPolicy::new(Schedule::fixed(Duration::from_millis(1), 0));
    settings.breaker = Some(Breaker { failures: 2, ..Breaker::default() });
    let running = run(&world, settings);
    world.until("failed", 30).await;
    running.stop().await;
    assert!(!is_open("picky"));
    assert_eq!(receiver.requests().len(), 30);
}
