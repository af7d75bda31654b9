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
    static RECORDER: LazyLock<PrometheusHandle> =
        LazyLock::new(|| PrometheusBuilder::new().install_recorder().unwrap());
    let line = format!("{name}{{pipeline=\"{pipeline}\"}} ");
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
    let lag = || gauge("away", "walpost_outbox_lag_seconds").unwrap();
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
