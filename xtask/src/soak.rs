//! `cargo xtask soak`: chaos and simulation with new seeds until the time is up.

use std::{
    fs,
    hash::{BuildHasher, RandomState},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use crate::{options::Options, program, simulate, tidy};

/// Programs with their arguments, in turn. Each takes a minute or a few.
const KINDS: [&[&str]; 8] = [
    &["relay", "--rounds", "10"],
    &["relay", "--rounds", "10", "--mode", "transactional"],
    &["consumer", "--rounds", "8"],
    &["webhook", "--rounds", "8"],
    &["relay", "--rounds", "6", "--zombies"],
    &["relay", "--rounds", "4", "--frozen-replica"],
    &["simulate", "relay"],
    &["simulate", "consumer"],
];
const SIMULATED_SCHEDULES: &str = "20000";

/// Runs kinds of chaos in turn, each with a new seed, which it prints; also after one
/// failed.
///
/// # Errors
/// If an option is wrong, something does not build, or a run failed.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let options = Options::parse(arguments, &["--minutes", "--seed"], &[])?;
    let minutes = options.number("--minutes")?.context("--minutes is missing, such as 30")?;
    let end = Instant::now() + Duration::from_secs(60 * minutes);
    let mut seed = options.number("--seed")?.unwrap_or_else(|| RandomState::new().hash_one(end));
    program::build()?;
    let logs = tidy::root().join("target/soak");
    fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
    let mut passed = 0;
    let mut failed = Vec::new();
    for (number, kind) in KINDS.iter().cycle().enumerate() {
        if Instant::now() >= end {
            break;
        }
        seed = seed.wrapping_add(1);
        let name = format!("{} --seed {seed}", kind.join(" "));
        let log = logs.join(format!("{number}.log"));
        let began = Instant::now();
        let is_well = run_one(kind, seed, &log)?;
        let seconds = began.elapsed().as_secs();
        if is_well {
            passed += 1;
            println!("ok in {seconds} s: {name}");
        } else {
            println!("FAILED in {seconds} s: {name}; see {}", log.display());
            failed.push(name);
        }
    }
    failed.iter().for_each(|name| println!("FAILED: {name}"));
    println!("{passed} passed, {} failed", failed.len());
    ensure!(failed.is_empty(), "{} runs failed", failed.len());
    Ok(())
}

fn run_one(kind: &[&str], seed: u64, log: &Path) -> Result<bool> {
    let seed = seed.to_string();
    let mut command = match kind {
        ["simulate", what] => simulate::command(what, SIMULATED_SCHEDULES, &seed)?,
        _ => {
            let mut chaos = Command::new(program::path("walpost-chaos"));
            chaos.args(kind).args(["--seed", &seed]);
            chaos
        }
    };
    let create =
        || fs::File::create(log).with_context(|| format!("cannot create {}", log.display()));
    let output = create()?;
    let errors = output.try_clone().context("cannot share a file")?;
    let status = command
        .current_dir(tidy::root())
        .stdout(output)
        .stderr(errors)
        .status()
        .with_context(|| format!("cannot run {}", kind.join(" ")))?;
    Ok(status.success())
}
