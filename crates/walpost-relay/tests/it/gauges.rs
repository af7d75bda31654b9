//! What the metrics say while no session runs.

use std::{
    sync::{LazyLock, OnceLock},
    time::Duration,
};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use walpost_relay::RelayError;
use walpost_testkit::until;

use crate::{
    rig::{Rig, SOON, status, stop},
    sink::MemorySink,
};

fn gauge(pipeline: &str, name: &str) -> Option<f64> {
    labelled(pipeline, name, "")
}

/// With further labels, as `,name="value"`.
fn labelled(pipeline: &str, name: &str, labels: &str) -> Option<f64> {
    static RECORDER: LazyLock<PrometheusHandle> =
        LazyLock::new(|| PrometheusBuilder::new().install_recorder().unwrap());
    let line = format!("{name}{{pipeline=\"{pipeline}\"{labels}}} ");
    let text = RECORDER.render();
    text.lines().find_map(|candidate| candidate.strip_prefix(&line))?.parse().ok()
}

#[tokio::test]
async fn lag_and_phase_move_on_while_postgres_is_away() {
    assert_eq!(gauge("away", "walpost_relay_streaming"), None, "the recorder is there first");
    let mut rig = Rig::new().await;
    rig.config.pipeline = "away".into();
    let (rig, proxy) = rig.behind_a_proxy().await;
    let relay = rig.streaming().await;
    let lag = || labelled("away", "walpost_outbox_lag_seconds", ",sink=\"memory\"").unwrap();
    let streaming = || gauge("away", "walpost_relay_streaming").unwrap();
    until(SOON, "the phase", async || streaming() == 1.0).await;

    rig.world.hold(true);
    rig.insert("a", &["1"]).await;
    status(&relay, "the event on its way", |status| status.oldest_pending_us.is_some()).await;
    proxy.cut();
    status(&relay, "the end of the session", |status| status.failed_sessions > 0).await;
    assert!(relay.status().borrow().oldest_pending_us.is_some());
    until(SOON, "the phase", async || streaming() == 0.0).await;
    let before = lag();
    until(SOON, "a lag that grows", async || lag() >= before + 1.0).await;

    rig.world.hold(false);
    proxy.restore();
    until(SOON, "the end of the lag", async || lag() == 0.0 && streaming() == 1.0).await;
    stop(relay).await;
}

#[tokio::test]
async fn unconfirmed_wal_grows_while_the_sink_is_away() {
    assert_eq!(gauge("nosink", "walpost_slot_unconfirmed_bytes"), None);
    let mut rig = Rig::new().await;
    rig.config.pipeline = "nosink".into();
    rig.config.start_timeout_ms = None;
    static CONNECTED: OnceLock<()> = OnceLock::new();
    let world = rig.world.clone();
    let relay = rig.relay().unwrap().start(async move || -> Result<MemorySink, RelayError> {
        if CONNECTED.get().is_none() {
            return Err(RelayError::Sink { detail: "away".into(), transient: true });
        }
        world.connect().await
    });
    status(&relay, "a failed session", |status| status.failed_sessions > 0).await;
    let noise = "create table noise as select repeat('x', 500) from generate_series(1, 20000)";
    rig.client.batch_execute(noise).await.unwrap();
    let unconfirmed = || gauge("nosink", "walpost_slot_unconfirmed_bytes").unwrap();
    until(SOON, "ten megabytes", async || unconfirmed() >= 1e7).await;
    CONNECTED.set(()).unwrap();
    until(Duration::from_secs(40), "nothing unconfirmed", async || unconfirmed() < 1e6).await;
    stop(relay).await;
}

#[tokio::test]
async fn what_the_slot_keeps_is_counted_against_its_budget() {
    assert_eq!(gauge("kept", "walpost_slot_retained_bytes"), None);
    let server = walpost_testkit::local::Postgres::builder()
        .throwaway()
        .setting("max_slot_wal_keep_size", "1GB")
        .start()
        .unwrap();
    let mut rig = Rig::on_local(Box::leak(Box::new(server))).await;
    rig.config.pipeline = "kept".into();
    rig.config.wal_budget_bytes = Some(64 << 20);
    rig.insert("a", &["0"]).await;
    rig.config.initial = Some(walpost_relay::Initial::Skip);
    let relay = rig.streaming().await;
    let retained = || gauge("kept", "walpost_slot_retained_bytes").unwrap_or(-1.0);
    let reserved =
        |status| labelled("kept", "walpost_slot_wal_status", &format!(",status=\"{status}\""));
    let states = || (reserved("reserved"), reserved("lost"));
    until(SOON, "a look", async || states() == (Some(1.0), Some(0.0))).await;
    assert!(retained() >= 0.0, "{}", retained());
    assert_eq!(gauge("kept", "walpost_slot_budget_bytes"), Some(67_108_864.0));
    let left = gauge("kept", "walpost_slot_invalidation_bytes").unwrap();
    assert!((9e8..1.2e9).contains(&left), "{left}");

    // The sink takes nothing, and the slot keeps everything.
    rig.world.hold(true);
    rig.insert("a", &["1"]).await;
    let noise = "create table noise as select repeat('x', 500) from generate_series(1, 60000)";
    rig.client.batch_execute(noise).await.unwrap();
    until(SOON, "thirty megabytes", async || retained() >= 3e7).await;
    let before = left;
    until(SOON, "less that is left", async || {
        gauge("kept", "walpost_slot_invalidation_bytes").unwrap() <= before - 3e7
    })
    .await;
    status(&relay, "the second mark", |status| {
        status.slot.as_ref().and_then(|slot| slot.budget).is_some_and(|budget| {
            budget.level >= walpost_relay::BudgetLevel::Quarter && budget.percent() >= 40
        })
    })
    .await;
    rig.world.hold(false);
    stop(relay).await;
}

#[tokio::test]
#[ignore = "deep: takes long"]
async fn what_is_parked_and_what_waits_behind_it_are_counted_apart() {
    assert_eq!(gauge("apart", "walpost_parked_open_events"), None);
    let mut rig = Rig::new().await;
    rig.config.pipeline = "apart".into();
    let relay = rig.streaming().await;
    rig.world.never("13");
    rig.insert("a", &["13", "1", "2"]).await;
    rig.insert("b", &["3"]).await;
    rig.landed(1).await;
    let count = |name| gauge("apart", name).unwrap_or(-1.0);
    let counts = || (count("walpost_parked_open_events"), count("walpost_parked_held_events"));
    let oldest = || count("walpost_parked_oldest_seconds");
    // They are counted every ten seconds.
    let counted = Duration::from_secs(40);
    let is_so = async || counts() == (1.0, 2.0) && oldest() >= 0.0;
    until(counted, "one parked event and two behind it", is_so).await;
    assert!(oldest() < 60.0, "{}", oldest());
    rig.client.batch_execute("update walpost.parked set state = 'done'").await.unwrap();
    until(counted, "no parked event", async || counts() == (0.0, 0.0) && oldest() == 0.0).await;
    stop(relay).await;
}
