//! Webhooks against what others have published, receivers that do what they
//! should not, and a real PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod addresses;
mod alerts;
mod bell;
mod bodies;
mod bounds;
mod breaker;
mod client;
mod deliveries;
mod dialling;
mod disabled;
mod faults;
mod grants;
mod lanes;
mod lost_ends;
mod marking;
mod operating;
mod oracle;
mod order;
mod order_faults;
mod order_races;
mod proxy;
mod pruner;
mod rate;
mod receive;
mod receiver;
mod retention;
mod secrets;
mod sink;
mod tls;
mod transitions;
mod waiting;
mod watch;
mod world;
