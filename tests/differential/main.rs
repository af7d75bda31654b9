//! `cargo xtask debezium`: Debezium and Walpost with the same connectors, tables and
//! rows, and what they publish compared.

#![allow(clippy::unwrap_used, reason = "a program for tests, which ends with what it tried")]

mod command;
mod table;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let command = command::Cli::parse();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    match runtime.block_on(command.run()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
