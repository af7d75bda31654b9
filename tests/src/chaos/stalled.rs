use std::time::Duration;

use super::{moments::some_moment, outcome::Outcome, rounds::Run, stage::Setting};

const BROKERS: u32 = 3;
/// From the freeze to the kill; the controller counts a broker out after 9 s.
const BEFORE_KILL_MOST: Duration = Duration::from_millis(1_500);
/// From the kill to the thaw.
const AFTER_KILL_MOST: Duration = Duration::from_millis(5_000);

/// Three brokers, each record on all of them. In each round one is frozen, so
/// that what its leader has appended is not acknowledged, the relay is killed,
/// and its successor starts meanwhile.
///
/// # Panics
/// When the relay does not get going again within a minute.
pub async fn stalled(setting: Setting, rounds: usize) -> Outcome {
    let mut run = Run::begin_with(setting, BROKERS).await;
    // The proxy stands before the first broker alone.
    run.first_relay().await.kill();
    let mut relay = run.stage.relay_past_proxies();
    let load = run.load().await;
    for number in 0..rounds {
        run.some_progress().await;
        run.note(number, rounds, "a broker frozen, the relay killed");
        let follower = number % (BROKERS as usize - 1);
        run.stage.servers(move |servers| servers.followers[follower].pause().unwrap()).await;
        some_moment(&mut run.seeded, BEFORE_KILL_MOST).await;
        relay.kill();
        relay = run.stage.relay_past_proxies();
        run.counts.kills += 1;
        run.counts.rounds += 1;
        some_moment(&mut run.seeded, AFTER_KILL_MOST).await;
        run.stage.servers(move |servers| servers.followers[follower].resume().unwrap()).await;
    }
    run.some_progress().await;
    run.end(load, relay, false).await
}
