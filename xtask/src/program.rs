//! Programs of the package of the tests, which are run from there so that this one
//! stays quick to build: relay and consumer under faults at full size, and Debezium
//! beside Walpost.

use std::{env, process::Command};

use anyhow::{Context, Result, ensure};

/// Runs one of them with these arguments; what they are, it says itself.
///
/// # Errors
/// If cargo cannot run it, or the promise was broken.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["run", "--quiet", "--package", "walpost-tests", "--bin", program, "--"])
        .args(arguments)
        .current_dir(crate::tidy::root())
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the promise was broken, or the run failed: {status}");
    Ok(())
}
