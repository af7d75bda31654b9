//! Debezium as the oracle: the same tables, rows and connector for it and for
//! another engine, and what both publish compared record by record.
//! `cargo xtask debezium` runs all of it, the test `debezium` a few cases.
//!
//! - `case.rs`: what a case is. `cases/`: all of them. `random/`: those from a seed.
//! - `connector.rs`: the file that both engines get.
//! - `servers.rs`, `worker.rs`, `tap.rs`, `stage.rs`: PostgreSQL, two brokers, Kafka
//!   Connect, and who reads what is published.
//! - `engine.rs`, `play.rs`, `run.rs`: both engines, one case, all cases.
//! - `compare.rs`, `steady.rs`, `difference.rs`, `diff.rs`: the verdict, which is
//!   pure.

mod case;
mod cases;
mod compare;
mod connector;
mod diff;
mod difference;
mod engine;
mod play;
mod random;
mod run;
mod servers;
mod stage;
mod steady;
mod tap;
mod worker;

pub use self::{
    case::{Case, Group},
    cases::cases,
    compare::Tally,
    difference::Difference,
    engine::Engine,
    random::random_cases,
    run::{Outcome, Setting, differential},
};
