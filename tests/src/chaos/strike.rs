use std::time::Duration;

use walpost_testkit::{Direction, Seeded};

use super::{
    faults::{Fault, Link},
    moments::{pass, some_moment},
    stage::{Relay, Stage},
};

/// How long after its start a relay is killed in its first moments.
const EARLY_MOST: Duration = Duration::from_millis(1_500);
const HALF_OPEN_LEAST: Duration = Duration::from_millis(300);
const HALF_OPEN_MORE: Duration = Duration::from_millis(1_700);
const AWAY_MOST: Duration = Duration::from_millis(500);

/// Strikes; how many relays were killed.
pub(super) async fn strike(
    stage: &Stage,
    relay: &mut Relay,
    fault: Fault,
    seeded: &mut Seeded,
) -> u64 {
    match fault {
        Fault::Kill => replace(stage, relay),
        Fault::EarlyKill => {
            // Its predecessor first, so that it starts after an unclean stop.
            let first = replace(stage, relay);
            some_moment(seeded, EARLY_MOST).await;
            first + replace(stage, relay)
        }
        Fault::BrokerKill { relay_too } => {
            stage.servers(|servers| servers.kafka.kill().unwrap()).await;
            let killed = away(stage, relay, relay_too, seeded).await;
            stage.servers(|servers| servers.kafka.start().unwrap()).await;
            killed
        }
        Fault::PostgresStop { relay_too } => {
            stage.servers(|servers| servers.postgres.stop_immediate().unwrap()).await;
            let killed = away(stage, relay, relay_too, seeded).await;
            stage.servers(|servers| servers.postgres.start().unwrap()).await;
            killed
        }
        Fault::Cut(link) => {
            stage.proxy(link).cut_connections();
            0
        }
        Fault::HalfOpen(link) => {
            half_open(stage, link, seeded).await;
            0
        }
    }
}

/// SIGKILL, and the next one at once.
fn replace(stage: &Stage, relay: &mut Relay) -> u64 {
    relay.kill();
    *relay = stage.relay();
    1
}

/// A server is away; perhaps the relay is killed meanwhile.
async fn away(stage: &Stage, relay: &mut Relay, relay_too: bool, seeded: &mut Seeded) -> u64 {
    some_moment(seeded, AWAY_MOST).await;
    if relay_too { replace(stage, relay) } else { 0 }
}

async fn half_open(stage: &Stage, link: Link, seeded: &mut Seeded) {
    let direction = match seeded.below(3) {
        0 => Direction::ToTarget,
        1 => Direction::ToClient,
        _ => Direction::Both,
    };
    let proxy = stage.proxy(link);
    proxy.swallow(direction);
    pass(HALF_OPEN_LEAST).await;
    some_moment(seeded, HALF_OPEN_MORE).await;
    proxy.cut_connections();
    proxy.restore();
}
