//! The binary from outside: its arguments, configuration and exit codes.

#![allow(clippy::unwrap_used)]

mod agreement;
mod cli;
mod config;
mod connector;
mod connector_run;
mod consumer;
mod consumer_parked;
mod consumer_prune;
mod consumer_reset;
mod consumer_role;
mod contracts;
mod deliveries;
mod demo;
mod idempotency;
mod inbox;
mod migrate;
mod mistakes;
mod output;
mod parked;
mod parked_requests;
mod partitions;
mod ready;
mod rig;
mod rows;
mod security;
mod serve;
mod webhook;
