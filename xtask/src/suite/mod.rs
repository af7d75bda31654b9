//! The tests of the workspace, by tier: what cargo has built, and running it.
//!
//! A test is in the deep tier if its package is not one of `default-members`, or if
//! it is marked `#[ignore = "deep: why"]`. Every other test is in the everyday tier,
//! which `cargo test` runs.
//!
//! [`built`] has cargo build the test executables, [`tiers`] says which tests of
//! each are in which tier, [`harness`] runs them, [`table`] prints durations.

pub(crate) mod built;
pub(crate) mod harness;
pub(crate) mod table;
pub(crate) mod tiers;

use std::{env, process::Command};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::tidy;

/// Cargo, in the root of the workspace.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(tidy::root());
    cargo
}

/// The packages of the workspace, as `cargo metadata` prints them.
///
/// # Errors
/// If cargo fails.
pub(crate) fn metadata() -> Result<Value> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .output()
        .context("cannot run cargo metadata")?;
    let log = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata failed: {log}");
    serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")
}
