use std::collections::{HashMap, HashSet};

use walpost_testkit::{Direction, Isolation, read_all_with, until};

use super::{
    faults::Link,
    load,
    outcome::Outcome,
    rounds::Run,
    stage::{Mode, Setting},
};
use crate::LIMIT;

const BEFORE_EVENTS: u64 = 1_000;
/// Committed since the last answer.
const HELD_EVENTS: usize = 2_000;
/// More than a question without records has, and less than a request with one. Behind
/// the first piece that is held the proxy reads nothing more.
const HELD_BYTES: u64 = 128;

/// What came of requests that arrived late.
#[derive(Clone, Debug)]
pub struct Held {
    /// As of any run.
    pub outcome: Outcome,
    /// Bytes of them, or more.
    pub bytes: u64,
    /// Events that were committed and not in the topic when their relay died.
    pub missing: u64,
    /// Records that they appended, after the successor had published everything;
    /// aborted ones as well.
    pub landed: u64,
    /// Copies that came before the copy of an earlier event of their aggregate.
    pub copies_out_of_order: u64,
}

/// The requests of a relay are held on their way, the relay is killed, its
/// successor publishes everything, and only then they reach the broker.
///
/// # Panics
/// When the successor does not publish everything within a minute.
pub async fn held(setting: Setting) -> Held {
    let copies_allowed = setting.mode == Mode::Idempotent;
    let mut run = Run::begin(setting).await;
    let relay = run.first_relay().await;
    let load = run.load().await;
    run.published(BEFORE_EVENTS).await;
    let proxy = run.stage.proxy(Link::Kafka);
    proxy.hold(Direction::ToTarget);
    let before = proxy.bytes_to_target();
    hold_produce_requests(&run, before).await;
    // Its answers reach nobody: whoever asked will be dead.
    run.stage.proxy(Link::Kafka).swallow(Direction::ToClient);
    run.counts.unknown_commits = load.stop().await;
    run.counts.kills = 1;
    relay.kill();
    let proxy = run.stage.proxy(Link::Kafka);
    let all = committed(&run).await as u64;
    let missing = all - run.tail.distinct();
    let successor = run.stage.relay_past_proxies();
    run.published(all).await;
    let before_release = records(&run).await;
    proxy.forward(Direction::ToTarget);
    until(LIMIT, "the end of what was held", async || proxy.open() == 0).await;
    let landed = records(&run).await - before_release;
    let bytes = proxy.bytes_to_target() - before;
    let copies_out_of_order = copies_out_of_order(&run).await;
    let outcome = run.judge(successor, copies_allowed).await;
    Held { outcome, bytes, missing, landed, copies_out_of_order }
}

/// Waits until the relay has an answer to all that has passed, and so is free to
/// send what commits from then on, and until it has sent some of that.
async fn hold_produce_requests(run: &Run, before: u64) {
    let proxy = run.stage.proxy(Link::Kafka);
    let least = match run.stage.setting.mode {
        Mode::Idempotent => HELD_BYTES,
        // Before the first record the transaction asks for its partition, and waits.
        Mode::Transactional => 1,
    };
    let mut last = (proxy.bytes_to_client(), committed(run).await);
    until(LIMIT, "requests that are held", async || {
        let now = (proxy.bytes_to_client(), committed(run).await);
        if now.0 != last.0 {
            last = now;
        }
        now.1 >= last.1 + HELD_EVENTS && proxy.bytes_to_target() >= before + least
    })
    .await;
}

async fn committed(run: &Run) -> usize {
    load::committed(&run.stage.url()).await.len()
}

/// Records of the topic, whatever became of them.
async fn records(run: &Run) -> u64 {
    let (bootstrap, topic) = (run.stage.bootstrap(), &run.stage.topic);
    read_all_with(&bootstrap, topic, Isolation::ReadUncommitted).await.len() as u64
}

async fn copies_out_of_order(run: &Run) -> u64 {
    let isolation = run.stage.setting.mode.isolation();
    let read = read_all_with(&run.stage.bootstrap(), &run.stage.topic, isolation).await;
    let mut seen = HashSet::new();
    let mut last = HashMap::new();
    let mut out_of_order = 0;
    for record in &read {
        if seen.insert(record.header_text("id").unwrap_or_default()) {
            continue;
        }
        let value: serde_json::Value = serde_json::from_str(record.value_text()).unwrap();
        let version = value["version"].as_u64().unwrap();
        let before = last.insert(record.key_text(), version);
        out_of_order += u64::from(before.is_some_and(|before| before >= version));
    }
    out_of_order
}
