//! Programs of the package of the tests, which are run from there so that this one
//! stays quick to build: relay and consumer under faults at full size, and Debezium
//! beside Walpost.

use std::{env, path::PathBuf, process::Command};

use anyhow::{Context, Result, ensure};

use crate::{suite::cargo, tidy};

/// What these programs run: they look for it where cargo puts it.
const NEEDED: [&[&str]; 2] = [
    &["build", "--quiet", "--release", "--package", "walpost", "--bin", "walpost"],
    &["build", "--quiet", "--package", "walpost-tests", "--bins"],
];

/// Builds these programs and what they run.
///
/// # Errors
/// If cargo fails.
pub(crate) fn build() -> Result<()> {
    for arguments in NEEDED {
        let status = cargo().args(arguments).status().context("cannot run cargo")?;
        ensure!(status.success(), "cargo {} failed: {status}", arguments.join(" "));
    }
    Ok(())
}

/// Where [`build`] puts a program.
pub(crate) fn path(program: &str) -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    tidy::root().join(target).join("debug").join(program)
}

/// Runs one of them with these arguments; `--help` prints what they are.
///
/// # Errors
/// If it cannot be built or run, or the promise was broken.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<()> {
    build()?;
    let mut command = Command::new(path(program));
    let status = command.args(arguments).current_dir(tidy::root()).status();
    let status = status.with_context(|| format!("cannot run {program}"))?;
    ensure!(status.success(), "the promise was broken, or the run failed: {status}");
    Ok(())
}
