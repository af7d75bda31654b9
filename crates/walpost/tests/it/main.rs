//! The binary from outside: its arguments, configuration and exit codes.

#![allow(clippy::unwrap_used)]

mod cli;
mod config;
mod consumer_parked;
mod demo;
mod inbox;
mod migrate;
mod mistakes;
mod output;
mod parked;
mod parked_requests;
mod partitions;
mod ready;
mod rows;
