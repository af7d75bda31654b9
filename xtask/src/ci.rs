//! What every change must pass, in the order of continuous integration: style first.

use anyhow::{Context, Result, ensure};

use crate::{suite, tidy};

const FORMAT: &[&str] = &["fmt", "--all", "--check"];
const LINT: &[&str] = &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
const TEST: &[&str] = &["test"];
const DOCUMENT: &[&str] = &["doc", "--workspace", "--no-deps"];

/// Runs the steps until one fails.
///
/// # Errors
/// Naming the step that failed.
pub(crate) fn run() -> Result<()> {
    cargo(FORMAT)?;
    eprintln!("== tidy");
    tidy::run()?;
    [LINT, TEST, DOCUMENT].into_iter().try_for_each(cargo)
}

fn cargo(arguments: &[&str]) -> Result<()> {
    let step = format!("cargo {}", arguments.join(" "));
    eprintln!("== {step}");
    let status = suite::cargo()
        .args(arguments)
        .env("RUSTDOCFLAGS", "-Dwarnings")
        .status()
        .with_context(|| format!("cannot run {step}"))?;
    ensure!(status.success(), "{step} failed: {status}");
    Ok(())
}
