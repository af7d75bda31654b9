//! Webhooks under faults: `walpost run` and a receiver, each with a database of
//! its own, a proxy between them, and one oracle over outbox and effects.
//!
//! - `stage.rs`: servers and programs, and what they tell. `load.rs`: the writer.
//! - `blows.rs`: which fault comes when, and how each is done.
//! - `run.rs`: what is run. `outcome.rs`: what came of it.

mod blows;
mod load;
mod outcome;
mod run;
mod stage;

pub use self::{
    blows::{WebhookBlow, webhook_blows},
    outcome::WebhookOutcome,
    run::{WebhookSetting, webhooks},
};
