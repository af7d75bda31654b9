use std::{borrow::Borrow, time::Duration};

use walpost_testkit::{Process, until};

use super::{
    outcome::{Outcome, Spread},
    rounds::Run,
    stage::{Relay, Setting},
    tail::now_us,
};
use crate::LIMIT;

/// In each round the active one of two relays is killed under load. Returns also
/// the longest time that an event waited across each kill, from its writing to
/// its reading; the recovery of the outcome is that from the kill to the first
/// record that only the other one can have published.
///
/// # Panics
/// When the other one does not take over within a minute.
pub async fn takeovers(setting: Setting, rounds: usize) -> (Outcome, Spread) {
    let mut run = Run::begin(setting).await;
    let mut active = run.first_relay().await;
    let mut standby = stand_by(&run).await;
    let load = run.load().await;
    let mut waits = Vec::new();
    for number in 0..rounds {
        run.some_progress().await;
        run.note(number, rounds, "the active one of two killed");
        let killed_us = now_us();
        active.kill();
        run.counts.kills += 1;
        run.counts.rounds += 1;
        run.killed_us.push(killed_us);
        until(LIMIT, "a record of the other one", async || run.tail.gap_us(killed_us).is_some())
            .await;
        // What was written while nobody published has come by now as well.
        run.some_progress().await;
        waits.push(Duration::from_micros(run.tail.longest_wait_us(killed_us, now_us())));
        active = standby;
        standby = stand_by(&run).await;
    }
    standby.kill();
    (run.end(load, active, false).await, Spread::of(waits))
}

/// Starts a relay and waits until it stands by.
async fn stand_by(run: &Run) -> Relay {
    let relay = run.stage.relay();
    let process: &Process = relay.borrow();
    until(LIMIT, "a relay that stands by", async || process.log().contains("standing by")).await;
    relay
}
