//! Real processes on real databases, killed and retried; what came of it is read
//! from the provider's table and from ours.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod faults;
mod kills;
mod oracle;
mod whole;
mod world;
