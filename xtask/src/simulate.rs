//! The simulations of relay and consumer, for longer than their tests run them.

use std::{
    hash::{BuildHasher, RandomState},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

use crate::{options, suite::cargo};

/// Package and test.
const RELAY: [&str; 2] =
    ["walpost-relay", "simulation::tests::no_schedule_loses_repeats_or_reorders_an_event"];
const CONSUMER: [&str; 2] =
    ["walpost-consumer", "simulation::tests::no_schedule_loses_or_repeats_an_effect_or_a_replay"];

#[derive(Debug, PartialEq, Eq)]
struct Options {
    schedules: u64,
    /// Random without it.
    seed: Option<u64>,
}

impl Options {
    fn parse(arguments: &[&str]) -> Result<Self> {
        let given = options::Options::parse(arguments, &["--schedules", "--seed"], &[])?;
        let schedules = given.number("--schedules")?.unwrap_or(1_000_000);
        Ok(Self { schedules, seed: given.number("--seed")? })
    }
}

/// Runs schedules, and shows how many are done.
///
/// # Errors
/// If an option is wrong, or a schedule fails; which one is shown then.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let ([package, test], arguments) = match arguments {
        ["consumer", rest @ ..] => (CONSUMER, rest),
        ["relay", rest @ ..] => (RELAY, rest),
        all => (RELAY, all),
    };
    let Options { schedules, seed } = Options::parse(arguments)?;
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(test));
    let mut command = cargo_test([package, test], &schedules.to_string(), &seed.to_string());
    let status = command.status().context("cannot run cargo")?;
    ensure!(status.success(), "a schedule failed, or cargo did: {status}");
    Ok(())
}

/// The command that runs so many schedules of the `relay` or the `consumer`.
///
/// # Errors
/// If there is no such simulation.
pub(crate) fn command(simulated: &str, schedules: &str, seed: &str) -> Result<Command> {
    match simulated {
        "relay" => Ok(cargo_test(RELAY, schedules, seed)),
        "consumer" => Ok(cargo_test(CONSUMER, schedules, seed)),
        other => bail!("no simulation of {other:?}; there are relay and consumer"),
    }
}

/// Optimised, which costs a build and makes schedules several times as fast.
fn cargo_test([package, test]: [&str; 2], schedules: &str, seed: &str) -> Command {
    let mut command = cargo();
    command
        .args(["test", "--release", "--package", package, "--lib", test])
        .args(["--", "--exact", "--nocapture"])
        .env("WALPOST_TEST_SCHEDULES", schedules)
        .env("WALPOST_TEST_SEED", seed);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_wrong_ones_are_named() {
        let read = |arguments: &[&str]| Options::parse(arguments).map_err(|e| e.to_string());
        let expected = Options { schedules: 7, seed: Some(9) };
        assert_eq!(read(&["--seed", "9", "--schedules", "7"]), Ok(expected));
        assert_eq!(read(&[]), Ok(Options { schedules: 1_000_000, seed: None }));
        for wrong in [&["--seed"][..], &["--seed", "x"], &["--seeds", "1"]] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains(wrong[0]), "{error}");
        }
    }
}
