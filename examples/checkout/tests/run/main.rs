//! Real processes on real databases, killed and retried; what came of it is read
//! from the databases of all three sides.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod faults;
mod keyless;
mod kills;
mod oracle;
mod whole;
mod world;
