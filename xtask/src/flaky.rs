//! `cargo xtask flaky`: repeats tests next to busy processes, and counts failures.

use std::{
    collections::BTreeMap,
    env,
    io::Read,
    process::{Child, Command, Stdio},
    thread,
};

use anyhow::{Context, Result, ensure};

use crate::{
    options::Options,
    suite::{
        built::{self, Packages},
        harness, table,
        tiers::{self, Tier},
    },
};

/// Hidden command of this program: a process that only computes.
pub(crate) const BURN: &str = "burn";
const PROCESSES: u64 = 2;

/// Runs everyday tests, or with `--deep` the deep ones, several times.
///
/// # Errors
/// If an option is wrong, the tests do not build, or one failed in any run.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let options = Options::parse(arguments, &["--runs", "--only", "--busy"], &["--deep"])?;
    let runs = options.number("--runs")?.context("--runs is missing, such as 10")?;
    let (tier, packages) = match options.has("--deep") {
        true => (Tier::Deep, Packages::All),
        false => (Tier::Everyday, Packages::Everyday),
    };
    let mut parts = tiers::parts(&built::build(packages, &[])?, tier)?;
    if let Some(word) = options.value("--only") {
        parts = tiers::only(parts, word);
    }
    ensure!(!parts.is_empty(), "no test matches");
    let tests: usize = parts.iter().map(|part| part.tests.len()).sum();
    let _busy = Busy::start(options.number("--busy")?.unwrap_or(PROCESSES))?;
    let mut failures: BTreeMap<String, Failed> = BTreeMap::new();
    for run in 1..=runs {
        let (mut seconds, mut failed) = (0.0, 0);
        for part in &parts {
            let mut lines = Vec::new();
            let ran = harness::run(&part.program, part.marked, &part.tests, &[], |line| {
                lines.push(line.to_owned());
            })?;
            seconds += ran.seconds;
            for outcome in ran.failed() {
                failed += 1;
                let name = format!("{} {}", part.name, outcome.path);
                eprintln!("run {run}: FAILED {name}");
                let one = failures.entry(name).or_default();
                one.times += 1;
                one.output = output_of(&lines, &outcome.path);
            }
        }
        eprintln!("run {run} of {runs}: {tests} tests in {seconds:.0} s, {failed} failed");
    }
    for (name, failed) in &failures {
        println!("== {name}\n{}", failed.output);
    }
    let rows: Vec<_> = failures
        .iter()
        .map(|(name, failed)| vec![name.clone(), format!("{} of {runs}", failed.times)])
        .collect();
    if !rows.is_empty() {
        println!("{}", table::aligned(&["test", "failed"], &rows));
    }
    println!("{} passed, {} failed", tests - failures.len(), failures.len());
    ensure!(failures.is_empty(), "{} of {tests} tests failed at least once", failures.len());
    Ok(())
}

#[derive(Debug, Default)]
struct Failed {
    times: u64,
    /// Of the last failure.
    output: String,
}

/// What the harness has captured of a test that failed.
fn output_of(lines: &[String], test: &str) -> String {
    let head = format!("---- {test} stdout ----");
    let after = lines.iter().skip_while(|line| **line != head).skip(1);
    let own: Vec<&str> =
        after.take_while(|line| !line.starts_with("---- ")).map(String::as_str).collect();
    own[own.len().saturating_sub(60)..].join("\n")
}

/// Computes until the starter ends.
pub(crate) fn burn() -> Result<()> {
    thread::spawn(|| {
        let mut number = 1_u64;
        loop {
            number = std::hint::black_box(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
    });
    // The starter holds the other end of the pipe.
    std::io::stdin().read_to_end(&mut Vec::new()).context("cannot wait for the starter")?;
    Ok(())
}

/// Processes that only compute, until this value is dropped.
struct Busy(Vec<Child>);

impl Busy {
    fn start(count: u64) -> Result<Self> {
        let program = env::current_exe().context("cannot find this program")?;
        let start = |_| Command::new(&program).arg(BURN).stdin(Stdio::piped()).spawn();
        let started: Result<_, _> = (0..count).map(start).collect();
        started.map(Self).context("cannot start a busy process")
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.stdin.take());
            drop(child.wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_failed_test_is_found() {
        let lines = "test a ... FAILED\n---- a stdout ----\nx\ny\n---- b stdout ----\nz";
        let lines: Vec<String> = lines.lines().map(str::to_owned).collect();
        assert_eq!(output_of(&lines, "a"), "x\ny");
        assert_eq!(output_of(&lines, "b"), "z");
        assert_eq!(output_of(&lines, "c"), "");
    }
}
