//! Automation of the project: `cargo xtask <command>`.

mod ci;
mod deep;
mod durations;
mod flaky;
mod graph;
mod kafka;
mod options;
mod program;
mod services;
mod simulate;
mod soak;
mod suite;
mod systems;
mod tidy;
mod tools;

use std::{env, process::ExitCode};

const USAGE: &str = "usage: cargo xtask <command>

  ci              what every change must pass: fmt, clippy, tidy, test, doc
  tidy            check the house rules
  test            run the everyday tests, as `cargo test` does [--only WORD]
                  [--durations: print what takes how long]
                  [--from-scratch: build everything first, and print crate by crate]
  deep            run all other tests and the checks that take long [--only WORD]
                  [--without WORD] [--slice K/N] [--list]
  flaky           repeat tests next to busy processes and count failures --runs N
                  [--only WORD] [--deep] [--busy PROCESSES, default 2]
  soak            run chaos and simulation with new seeds --minutes M [--seed S]
  graph           print each crate with its modules, cycles and dependencies [--json]
                  [--cycles: only the cycles] [--crate NAME: its modules and cycles] [--svg FILE: draw the crates]
  kafka TOOL ...  run Kafka's topics, consumer-groups or console-consumer
  chaos relay     the real relay under kills and other faults [--rounds N] [--mode M]
                  [--seed S] [--zombies] [--json]; also chaos outage, chaos takeover
  chaos consumer  three real consumers under kills, pauses, rebalances and more
                  [--rounds N] [--group G] [--seed S] [--json]
  chaos webhook   a real sender and receiver of webhooks under kills, lost answers and
                  stops of their databases [--rounds N] [--seed S] [--json]
  debezium        Debezium and Walpost with the same connectors, tables and rows, and
                  all their records compared [--only TEXT] [--random N] [--seed S]
                  [--list] [--json]
  simulate        run the relay, or with `simulate consumer` the consumer's protocol,
                  through simulated schedules, from a random seed on
                  [--schedules N] [--seed S]
  systems         run the tests of each row of docs/systems.md, and fail on a row
                  that has none [--only TEXT] [--list] [--json]
  services up     start PostgreSQL and Kafka in the background
  services down   stop them; their data stays";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["ci"] => ci::run(),
        ["tidy"] => tidy::run(),
        ["test", options @ ..] => durations::run(options),
        ["deep", options @ ..] => deep::run(options),
        ["flaky", options @ ..] => flaky::run(options),
        ["graph", options @ ..] => graph::run(options),
        ["soak", options @ ..] => soak::run(options),
        [flaky::BURN] => flaky::burn(),
        ["kafka", tool, arguments @ ..] => kafka::run(tool, arguments),
        ["chaos", arguments @ ..] => program::run("walpost-chaos", arguments),
        ["debezium", arguments @ ..] => program::run("walpost-debezium", arguments),
        ["simulate", options @ ..] => simulate::run(options),
        ["systems", options @ ..] => systems::run(options),
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
