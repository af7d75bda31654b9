//! `start_timeout_ms` is one deadline for all that a start waits for.

use std::time::{Duration, Instant};

use walpost_event::error_chain;
use walpost_relay::{Phase, RelayError, RunningRelay};
use walpost_testkit::{Direction, until};

use crate::{
    rig::{Rig, SOON, phase, stop},
    sink::MemorySink,
};

const LIMIT_MS: u64 = 1_500;
/// For what is no wait, on a machine that has other things to do.
const SLACK: Duration = Duration::from_secs(4);

/// Ends within its deadline; the error.
async fn given_up(mut relay: RunningRelay, began: Instant) -> String {
    let ended = tokio::time::timeout(SOON, relay.finished()).await;
    let error = ended.expect("it gives up").unwrap_err();
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(LIMIT_MS / 2), "{took:?}");
    assert!(took < Duration::from_millis(LIMIT_MS) + SLACK, "{took:?}: {error}");
    error_chain(&error)
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_on_at_the_deadline() {
    let (mut rig, proxy) = Rig::new().await.behind_a_proxy().await;
    rig.config.start_timeout_ms = Some(LIMIT_MS);
    proxy.swallow(Direction::ToClient);
    let began = Instant::now();
    let told = given_up(rig.start(), began).await;
    assert!(told.contains("connecting to PostgreSQL did not end"), "{told}");
}

#[tokio::test]
async fn a_sink_that_says_nothing_is_given_up_on_at_the_deadline() {
    let mut rig = Rig::new().await;
    rig.config.start_timeout_ms = Some(LIMIT_MS);
    let began = Instant::now();
    let relay = rig.relay().unwrap();
    let relay = relay.start(async || std::future::pending::<Result<MemorySink, _>>().await);
    let told = given_up(relay, began).await;
    assert!(told.contains("the sink failed: it was not connected within 1500 ms"), "{told}");
}

#[tokio::test]
async fn a_sink_that_is_away_is_told_as_what_it_said() {
    let mut rig = Rig::new().await;
    rig.config.start_timeout_ms = Some(LIMIT_MS);
    let began = Instant::now();
    let away = || RelayError::Sink { detail: "no route".to_owned(), transient: true };
    let relay = rig.relay().unwrap().start(async move || Err::<MemorySink, _>(away()));
    let told = given_up(relay, began).await;
    assert!(told.contains("no route"), "{told}");
}

#[tokio::test]
async fn transactions_that_a_new_slot_waits_for_do_not_count() {
    let mut rig = Rig::new().await;
    rig.config.start_timeout_ms = Some(1_000);
    rig.client
        .batch_execute(
            "begin; insert into walpost.outbox (aggregatetype, aggregateid, type) \
                              values ('order', 'a', 'Placed')",
        )
        .await
        .unwrap();
    let relay = rig.start();
    let began = Instant::now();
    until(SOON, "more than a start may wait", async || began.elapsed() > Duration::from_secs(3))
        .await;
    assert!(relay.status().borrow().phase == Phase::Starting);
    rig.client.batch_execute("rollback").await.unwrap();
    phase(&relay, &Phase::Streaming).await;
    stop(relay).await;
}
