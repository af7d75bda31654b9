//! The inbox against a real PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod apply;
mod contents;
mod faults;
mod grants;
mod insert;
mod manual;
mod member;
mod operator;
mod order;
mod pooled;
mod processing;
mod prune;
mod pruner;
mod session;
mod support;
mod transitions;
