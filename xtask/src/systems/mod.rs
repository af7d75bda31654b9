//! The systems that Walpost is held to, row by row: `cargo xtask systems`.
//!
//! [`table`] reads the rows, [`verdict`] gives the result of each, both without
//! running anything; [`harness`] runs the tests, of all tiers.

mod harness;
mod table;
mod verdict;

use std::{collections::BTreeSet, fs};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::{options, tidy};

pub(crate) use table::rows;
pub(crate) use verdict::find;

use table::Row;
use verdict::{Outcomes, Verdict, judge};

/// Where the rows are.
pub(crate) const DOCUMENT: &str = "docs/systems.md";

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    /// Text that a row has to have, in either case; "" for all rows.
    only: String,
    /// Shows the tests and runs none.
    list: bool,
    /// The last line of stdout is one object.
    json: bool,
}

impl Options {
    fn parse(arguments: &[&str]) -> Result<Self> {
        let given = options::Options::parse(arguments, &["--only"], &["--list", "--json"])?;
        let only = given.value("--only").unwrap_or_default().to_lowercase();
        Ok(Self { only, list: given.has("--list"), json: given.has("--json") })
    }
}

/// Runs the tests of the rows, and says of each row what became of them.
///
/// # Errors
/// If an option is wrong, the document cannot be read or has no such row, or a
/// row has no test, names one that there is not, ran none, or failed.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let options = Options::parse(arguments)?;
    let text = fs::read_to_string(tidy::root().join(DOCUMENT))
        .with_context(|| format!("cannot read {DOCUMENT}"))?;
    let mut rows = rows(&text).context(DOCUMENT)?;
    rows.retain(|row| row.text.to_lowercase().contains(&options.only));
    ensure!(!rows.is_empty(), "no row of {DOCUMENT} has {:?}", options.only);
    let tests = tidy::tests()?;
    let found: Vec<_> = rows.iter().map(|row| find(row, &tests)).collect();
    let outcomes = if options.list {
        Outcomes::new()
    } else {
        let named: BTreeSet<tidy::Test> = found.iter().flatten().flatten().cloned().collect();
        harness::run(&named)?
    };
    let judged: Vec<(&Row, Verdict)> = rows
        .iter()
        .zip(&found)
        .map(|(row, found)| match found {
            Ok(tests) if options.list => (row, Verdict::Listed(tests.clone())),
            Ok(tests) => (row, judge(tests, &outcomes)),
            Err(verdict) => (row, verdict.clone()),
        })
        .collect();
    tell(&judged, options.json);
    let bad = judged.iter().filter(|(_, verdict)| !verdict.is_fine()).count();
    ensure!(bad == 0, "{bad} of {} rows did not pass", judged.len());
    Ok(())
}

fn tell(judged: &[(&Row, Verdict)], as_json: bool) {
    for (row, verdict) in judged {
        println!("{DOCUMENT}:{}: {}: {verdict}", row.line, row.what);
    }
    if as_json {
        let rows: Vec<_> = judged
            .iter()
            .map(|(row, verdict)| {
                json!({
                    "line": row.line,
                    "what": row.what,
                    "tests": row.names,
                    "passed": *verdict == Verdict::Passed,
                    "verdict": verdict.to_string(),
                })
            })
            .collect();
        let passed = judged.iter().filter(|(_, verdict)| *verdict == Verdict::Passed).count();
        let bad = judged.iter().filter(|(_, verdict)| !verdict.is_fine()).count();
        println!("{}", json!({ "passed": passed, "not_passed": bad, "rows": rows }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_wrong_ones_are_named() {
        let read = |arguments: &[&str]| Options::parse(arguments).map_err(|e| e.to_string());
        let all = Options { only: "inbox".to_owned(), list: true, json: true };
        assert_eq!(read(&["--json", "--only", "Inbox", "--list"]), Ok(all));
        assert_eq!(read(&[]), Ok(Options::default()));
        for wrong in [&["--only"][..], &["--all"]] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains(wrong[0]), "{error}");
        }
    }
}
