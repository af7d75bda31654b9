//! Automation of the project: `cargo xtask <command>`.

mod services;

use std::{env, process::ExitCode};

const USAGE: &str = "usage: cargo xtask <command>

  services up     start PostgreSQL and Kafka in the background
  services down   stop them; their data stays";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["services", "up"] => services::up(),
        ["services", "down"] => services::down(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
