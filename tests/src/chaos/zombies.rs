use super::{
    outcome::Outcome,
    rounds::Run,
    stage::{Mode, Setting},
};
use crate::zombie::wake_beside_successor;

/// Events between two steps of a round.
const PROGRESS_EVENTS: u64 = 300;

/// In each round the relay is paused until its successor has taken over, and
/// woken beside it. In idempotent mode what it had on its way may come twice,
/// which is counted.
///
/// # Panics
/// When nobody takes over within a minute.
pub async fn zombies(setting: Setting, rounds: usize) -> Outcome {
    let copies_allowed = setting.mode == Mode::Idempotent;
    let mut run = Run::begin(setting).await;
    let mut relay = run.first_relay().await;
    let load = run.load().await;
    for number in 0..rounds {
        run.some_progress().await;
        run.note(number, rounds, "paused and woken beside its successor");
        let progress = async || run.published(run.tail.distinct() + PROGRESS_EVENTS).await;
        let successor = wake_beside_successor(&relay, || run.stage.relay(), progress).await;
        // It would be the next to take over.
        relay.kill();
        relay = successor;
        run.counts.rounds += 1;
    }
    run.end(load, relay, copies_allowed).await
}
