use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

use crate::tidy::{Target, Test};

use super::{
    built::{self, Program},
    verdict::Outcomes,
};

/// Runs the tests, those of one target of a package at once, and shows on
/// stderr what cargo and they say. A test that did not run has no outcome.
///
/// # Errors
/// If they do not compile, or cannot be started or read.
pub(super) fn run(tests: &BTreeSet<Test>) -> Result<Outcomes> {
    let programs = built::build()?;
    let mut targets: BTreeMap<(String, Target), Vec<&Test>> = BTreeMap::new();
    for test in tests {
        targets.entry((test.package.clone(), test.target.clone())).or_default().push(test);
    }
    let mut outcomes = Outcomes::new();
    for (target, tests) in targets {
        for program in programs.get(&target).into_iter().flatten() {
            run_in(program, &tests, &mut outcomes)?;
        }
    }
    Ok(outcomes)
}

fn run_in(program: &Program, tests: &[&Test], outcomes: &mut Outcomes) -> Result<()> {
    let mut child = Command::new(&program.path)
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .arg("--exact")
        .args(tests.iter().map(|test| &test.path))
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", program.path.display()))?;
    let stdout = child.stdout.take().expect("it was piped");
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.context("cannot read what the tests say")?;
        let line = String::from_utf8_lossy(&line);
        eprintln!("{line}");
        if let Some((path, passed)) = outcome(&line)
            && let Some(test) = tests.iter().find(|test| test.path == path)
        {
            outcomes.insert((*test).clone(), passed);
        }
    }
    // Each test has its own outcome; without one it did not run.
    child.wait().context("cannot wait for the tests")?;
    Ok(())
}

/// What a line of the harness says about a test: its path, and whether it
/// passed. One that was ignored has not run.
fn outcome(line: &str) -> Option<(&str, bool)> {
    let (test, end) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let path = test.split(' ').next()?;
    match end.trim_end() {
        "ok" => Some((path, true)),
        "FAILED" => Some((path, false)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_has_run_once_its_line_says_how_it_ended() {
        for (line, expected) in [
            ("test a::b ... ok", Some(("a::b", true))),
            ("test a::b - should panic ... ok\r", Some(("a::b", true))),
            ("test a::b ... FAILED", Some(("a::b", false))),
            ("test a::b ... ignored", None),
            ("test a::b has been running for over 60 seconds", None),
            ("test result: ok. 0 passed; 0 failed; 0 ignored", None),
            ("running 0 tests", None),
        ] {
            assert_eq!(outcome(line), expected, "{line}");
        }
    }
}
