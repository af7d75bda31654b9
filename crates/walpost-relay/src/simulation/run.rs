use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::{error::Elapsed, timeout};

use super::{
    Bug, Planted, lives::Living, mover::hand, pruner::prune, relay::Relay, schedule::Schedule,
    world::World,
};

/// Of the world's time, for one schedule. A schedule that takes longer is stuck.
const SCHEDULE_MAX: Duration = Duration::from_secs(120);

/// Lets a schedule happen, and says what is wrong then.
pub(super) fn run(schedule: &Schedule, bug: Option<Bug>) -> Option<String> {
    let _planted = Planted::new(bug);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O");
    let schedule = Arc::new(schedule.clone());
    runtime.block_on(async {
        let world = World::new(&schedule);
        let relays: Vec<Relay<'_>> =
            (0..schedule.pipelines.len()).map(|of| Relay::new(&schedule, world.of(of))).collect();
        // Whoever does something in the world, each polled when it has to be.
        let mut actors: FuturesUnordered<Living<'_, ()>> = FuturesUnordered::new();
        actors.extend(relays.iter().map(|relay| Box::pin(relay.live()) as Living<'_, ()>));
        let pruning = schedule.pruning.iter();
        actors.extend(pruning.map(|one| Box::pin(prune(&world, *one)) as Living<'_, ()>));
        let handings = schedule.handings();
        actors.extend(
            handings
                .map(|(index, one)| Box::pin(hand(&world, index, one.clone())) as Living<'_, ()>),
        );
        let lived: Result<(), Elapsed> = timeout(SCHEDULE_MAX, async {
            tokio::select! {
                biased;
                () = world.over() => {}
                () = actors.collect::<()>() => {}
            }
        })
        .await;
        let stuck = || format!("nothing new within {} s of its time", SCHEDULE_MAX.as_secs());
        world.judge().or_else(|| lived.err().map(|_| stuck()))
    })
}
