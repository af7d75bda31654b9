//! The program `walpost` as a library of one function: events from a PostgreSQL
//! outbox to Kafka, exactly as they were committed. Only the program is stable.
//!
//! Features, which packages are built with and a plain build leaves out:
//! `contracts` (the command of that name) and `pgwire` (a second client of the WAL).
//!
//! `cli` has the arguments, `command` one file for each command, `config` the
//! configuration and its layers, `demo` the demonstration. Errors are printed once,
//! here, and decide the exit code: see `failure::Exit`.

mod cli;
mod command;
mod config;
mod demo;
mod failure;
mod http;
mod log;
mod output;
mod signals;
mod table;

use std::process::ExitCode;

use clap::Parser;

/// Runs the command that the process was started with, and returns its exit code.
#[must_use]
pub fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let json = cli.json();
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.print(json),
    }
}
