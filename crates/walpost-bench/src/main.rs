//! Walpost and its peers on the same work, side by side, on private servers
//! that are started for it and end with it.
//!
//! ```text
//! cargo build --release -p walpost
//! cargo run --release -p walpost-bench -- relay
//! cargo run --release -p walpost-bench -- relay --encoding avro
//! cargo run --release -p walpost-bench -- consumer
//! cargo run --release -p walpost-bench -- slow
//! cargo run --release -p walpost-bench -- transaction
//! cargo run --release -p walpost-bench -- idempotency
//! cargo run --release -p walpost-bench -- webhook
//! ```
//!
//! `relay`: `relay.rs` fills a backlog (`workload.rs`) behind one slot for each
//! [`Subject`](subject::Subject), lets each empty its slot (`drain.rs`, with
//! what `/proc` says in `measure.rs`), then measures latency (`latency.rs`); as text,
//! or as one connector's file says for all (`encoding.rs`).
//! `consumer`: `consumer.rs` fills a topic and applies it in several ways, each
//! in a process of its own, also by Debezium's JDBC sink (`jdbc.rs`); then
//! `end_to_end.rs` measures from an application's commit to the effect's.
//! `slow`: `slow.rs` applies a topic with a handler that waits, with one lane and
//! with several.
//! `transaction`: `transaction.rs` has walpost publish one transaction of many
//! rows, once in peace and once with a kill; `arrivals.rs` looks at what came.
//! `idempotency.rs` measures what the layer of idempotency keys adds to a handler.
//! `webhook.rs` delivers a backlog, and measures a fast destination beside slow and
//! dead ones.
//! `report.rs` prints the others.

mod arrivals;
mod consumer;
mod database;
mod drain;
mod encoding;
mod idempotency;
mod latency;
mod measure;
mod publish;
mod relay;
mod report;
mod services;
mod slow;
mod subject;
mod topic;
mod transaction;
mod webhook;
mod workload;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// A line on what is being done, to stderr.
macro_rules! progress {
    ($($text:tt)*) => { eprintln!("bench: {}", format_args!($($text)*)) };
}
pub(crate) use progress;

/// Measures walpost beside its peers.
#[derive(Debug, Parser)]
#[command(name = "walpost-bench", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Relay(relay::RelayArgs),
    Consumer(consumer::ConsumerArgs),
    Slow(slow::SlowArgs),
    Transaction(transaction::TransactionArgs),
    Idempotency(idempotency::IdempotencyArgs),
    Webhook(webhook::WebhookArgs),
    #[command(hide = true)]
    ConsumerSubject(consumer::SubjectArgs),
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Relay(args) => relay::run(&args),
        Command::Consumer(args) => consumer::run(&args),
        Command::Slow(args) => slow::run(&args),
        Command::Transaction(args) => transaction::run(&args),
        Command::Idempotency(args) => idempotency::run(&args),
        Command::Webhook(args) => webhook::run(&args),
        Command::ConsumerSubject(args) => consumer::run_subject(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
