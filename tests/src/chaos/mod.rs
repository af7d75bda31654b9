//! The relay under faults for hours instead of seconds: real servers of its
//! own, steady load, and one oracle over what was committed and what a reader
//! of the topic gets. `cargo xtask chaos` runs it at full size, a test of
//! `faults` in small, so that it stays true.
//!
//! - `stage.rs`: the servers, the proxies in front of them, and the relay.
//!   `debezium.rs`: the peer in its place.
//! - `load.rs`: the writers. `tail.rs`: a reader of the topic while it grows.
//! - `faults.rs`: which fault comes when. `strike.rs`: how each is done.
//! - `rounds.rs`, `zombies.rs`, `takeover.rs`, `outage.rs`, `held.rs`,
//!   `stalled.rs`: what is run.
//! - `outcome.rs`: what came of it. `evidence.rs`: what is kept of a violation.
//!
//! `consumer/` does the same to consumers, `webhook/` to webhooks.

mod consumer;
mod debezium;
mod evidence;
mod faults;
mod held;
mod load;
mod moments;
mod outage;
mod outcome;
mod rounds;
mod stage;
mod stalled;
mod strike;
mod tail;
mod takeover;
mod webhook;
mod zombies;

pub(crate) use self::stage::off;
pub use self::{
    consumer::{
        Blow, ConsumerOutcome, ConsumerSetting, Membership, Pause, Sabotage, blows, consumers,
    },
    faults::{Fault, Link, schedule},
    held::{Held, held},
    outage::outage,
    outcome::{Counts, Outcome, Spread},
    rounds::rounds,
    stage::{Mode, Setting, Subject},
    stalled::stalled,
    takeover::takeovers,
    webhook::{WebhookBlow, WebhookOutcome, WebhookSetting, webhook_blows, webhooks},
    zombies::zombies,
};
