//! Everything that continuous integration asks for, in its order.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::tidy;

/// The steps that cargo takes; the last one after `tidy`.
const CHECKS: [&[&str]; 3] = [
    &["fmt", "--all", "--check"],
    &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"],
    &["doc", "--workspace", "--no-deps"],
];
const TEST: &[&str] = &["test", "--workspace"];

/// Runs the steps until one fails.
///
/// # Errors
/// Naming the step that failed.
pub(crate) fn run() -> Result<()> {
    for check in CHECKS {
        cargo(check)?;
    }
    eprintln!("== tidy");
    tidy::run()?;
    cargo(TEST)
}

fn cargo(arguments: &[&str]) -> Result<()> {
    let step = format!("cargo {}", arguments.join(" "));
    eprintln!("== {step}");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = Command::new(cargo)
        .args(arguments)
        .env("RUSTDOCFLAGS", "-Dwarnings")
        .current_dir(tidy::root())
        .status()
        .with_context(|| format!("cannot run {step}"))?;
    ensure!(status.success(), "{step} failed: {status}");
    Ok(())
}
