//! The round trip as it is run, with both sides as processes of their own, real
//! servers, and whatever can go wrong between them.
//!
//! - `stage.rs`: servers, sides and the network between them. `books.rs`: what both
//!   databases say at the end, and whether it fits.
//! - `run.rs`: the one command. `kills.rs`, `network.rs`, `databases.rs`: what goes
//!   wrong. `attempts.rs`: the end of all attempts. `answers.rs`: what logistics says.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod answers;
mod attempts;
mod books;
mod databases;
mod kills;
mod network;
mod run;
mod stage;
