//! Consumers under faults: three processes of one group, steady production with
//! a tenth of the records produced twice, and one oracle over topic and effects.
//!
//! - `stage.rs`: the servers, the tables, and what they tell. `members.rs`: the
//!   consumers. `membership.rs`: how they are members.
//! - `production.rs`: what is in the topic, and the copies.
//! - `blows.rs`: which fault comes when. `strike.rs`: how each is done.
//!   `zombie.rs`: the one that wakes beside its successors.
//! - `run.rs`: what is run. `verdict.rs`: what came of it, a pure function over
//!   what was read. `outcome.rs`: the figures, and the evidence of a violation.

mod blows;
mod members;
mod membership;
mod outcome;
mod production;
mod run;
mod stage;
mod strike;
mod verdict;
mod zombie;

pub use self::{
    blows::{Blow, Pause, blows},
    membership::Membership,
    outcome::ConsumerOutcome,
    run::{ConsumerSetting, Sabotage, consumers},
};
