//! `cargo xtask chaos`: relay, consumer and webhooks under faults at full size.

#![allow(clippy::unwrap_used, reason = "a program for tests, which ends with what it tried")]

mod command;
mod consumer;
mod table;
mod webhook;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
};

use clap::Parser;

fn main() -> ExitCode {
    let command = command::Cli::parse();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let run = AssertUnwindSafe(|| runtime.block_on(command.run()));
    let violations = match catch_unwind(run) {
        Ok(violations) => violations,
        // What was tried in vain is on stderr already.
        Err(_) => vec!["the run was given up; its logs are kept".to_owned()],
    };
    for violation in &violations {
        eprintln!("chaos: VIOLATION: {violation}");
    }
    if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
