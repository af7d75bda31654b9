//! Runs a test executable and reads what its harness prints.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, ensure};

use super::built::Program;

/// Which tests of an executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marked {
    /// Those without `#[ignore]`.
    No,
    /// Those with it.
    Yes,
    /// All.
    Either,
}

impl Marked {
    fn option(self) -> Option<&'static str> {
        match self {
            Self::No => None,
            Self::Yes => Some("--ignored"),
            Self::Either => Some("--include-ignored"),
        }
    }
}

/// How a test ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// With its modules.
    pub(crate) path: String,
    pub(crate) passed: bool,
    pub(crate) seconds: f64,
}

/// A run of one executable.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ran {
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) seconds: f64,
    /// Of all processes of the machine while it ran.
    pub(crate) cpu_seconds: f64,
}

impl Ran {
    pub(crate) fn failed(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|outcome| !outcome.passed)
    }
}

/// The paths of the tests.
///
/// # Errors
/// If the executable cannot be run, or fails.
pub(crate) fn list(program: &Program, marked: Marked) -> Result<Vec<String>> {
    let listed = |options: &[&str]| -> Result<Vec<String>> {
        let what = || format!("cannot list the tests of {}", program.path.display());
        let mut command = command(program);
        command.args(["--list", "--format", "terse"]).args(options).stdin(Stdio::null());
        let output = command.output().with_context(what)?;
        ensure!(output.status.success(), "{}: {}", what(), output.status);
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    };
    match marked {
        Marked::Either => listed(&[]),
        Marked::Yes => listed(&["--ignored"]),
        Marked::No => {
            let marked = listed(&["--ignored"])?;
            Ok(listed(&[])?.into_iter().filter(|path| !marked.contains(path)).collect())
        }
    }
}

/// Runs these tests with further variables of the environment, and passes each line
/// of the harness to `show`. A test without an outcome, as after a crash, has failed.
///
/// # Errors
/// If the executable cannot be run.
pub(crate) fn run(
    program: &Program,
    marked: Marked,
    tests: &[String],
    environment: &[(&str, String)],
    mut show: impl FnMut(&str),
) -> Result<Ran> {
    let (began, busy) = (Instant::now(), busy_seconds());
    let mut child = command(program)
        // Durations of tests are an unstable option of the harness alone.
        .env("RUSTC_BOOTSTRAP", "1")
        .args(["-Zunstable-options", "--report-time", "--exact"])
        .args(marked.option())
        .args(tests)
        .envs(environment.iter().map(|(name, value)| (*name, value.as_str())))
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", program.path.display()))?;
    let stdout = child.stdout.take().expect("it was piped");
    let mut outcomes = Vec::new();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.context("cannot read the output of the tests")?;
        let line = String::from_utf8_lossy(&line);
        show(&line);
        outcomes.extend(outcome(&line));
    }
    child.wait().context("cannot wait for the tests")?;
    for path in tests {
        if outcomes.iter().all(|outcome: &Outcome| outcome.path != *path) {
            show(&format!("test {path} has no outcome: its executable ended before"));
            outcomes.push(Outcome { path: path.clone(), passed: false, seconds: 0.0 });
        }
    }
    let cpu_seconds = (busy_seconds() - busy).max(0.0);
    Ok(Ran { outcomes, seconds: began.elapsed().as_secs_f64(), cpu_seconds })
}

fn command(program: &Program) -> Command {
    let mut command = Command::new(&program.path);
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    command
}

/// What a line of the harness says about a test. One that was ignored has not run.
fn outcome(line: &str) -> Option<Outcome> {
    let (test, end) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let path = test.split(' ').next()?.to_owned();
    let (word, time) = end.trim_end().split_once(" <").unwrap_or((end.trim_end(), ""));
    let seconds = time.trim_end_matches("s>").parse().unwrap_or_default();
    match word {
        "ok" => Some(Outcome { path, passed: true, seconds }),
        "FAILED" => Some(Outcome { path, passed: false, seconds }),
        _ => None,
    }
}

/// Since the start of the machine, of all its processors.
fn busy_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = |line: &str| -> f64 {
        let numbers = line.split_whitespace().skip(1).map(|word| word.parse().unwrap_or(0.0));
        // User, nice, system; idle and waiting are no work; interrupts.
        numbers.enumerate().filter(|(at, _)| [0, 1, 2, 5, 6].contains(at)).map(|(_, n)| n).sum()
    };
    stat.lines().next().map_or(0.0, ticks) / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_has_run_once_its_line_says_how_it_ended() {
        let ran =
            |path: &str, passed, seconds| Some(Outcome { path: path.to_owned(), passed, seconds });
        for (line, expected) in [
            ("test a::b ... ok", ran("a::b", true, 0.0)),
            ("test a::b ... ok <1.250s>", ran("a::b", true, 1.25)),
            ("test a::b - should panic ... ok <0.001s>\r", ran("a::b", true, 0.001)),
            ("test a::b ... FAILED <2.000s>", ran("a::b", false, 2.0)),
            ("test a::b ... ignored, deep: slow", None),
            ("test a::b has been running for over 60 seconds", None),
            ("test result: ok. 0 passed; 0 failed; 0 ignored", None),
            ("running 0 tests", None),
        ] {
            assert_eq!(outcome(line), expected, "{line}");
        }
    }

    #[test]
    fn tests_of_this_executable_are_listed_and_run_and_a_missing_one_has_failed() {
        let program = Program { path: std::env::current_exe().unwrap(), folder: ".".into() };
        let own = "suite::harness::tests::a_test_has_run_once_its_line_says_how_it_ended";
        assert!(list(&program, Marked::No).unwrap().contains(&own.to_owned()));
        let tests = [own.to_owned(), "no::such".to_owned()];
        let ran = run(&program, Marked::No, &tests, &[], |_| {}).unwrap();
        let passed: Vec<_> = ran.outcomes.iter().map(|o| (o.path.as_str(), o.passed)).collect();
        assert_eq!(passed, [(own, true), ("no::such", false)]);
        assert_eq!(ran.failed().count(), 1);
    }
}
