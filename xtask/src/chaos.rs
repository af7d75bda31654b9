//! Relay and consumer under faults at full size. The program is one of the package of the
//! tests, so that this one stays quick to build.

use std::{env, process::Command};

use anyhow::{Context, Result, ensure};

/// Runs it with these arguments; what they are, it says itself.
///
/// # Errors
/// If cargo cannot run it, or the promise was broken.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["run", "--quiet", "--package", "walpost-tests", "--bin", "walpost-chaos", "--"])
        .args(arguments)
        .current_dir(crate::tidy::root())
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the promise was broken, or the run failed: {status}");
    Ok(())
}
