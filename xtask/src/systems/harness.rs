use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use crate::{
    suite::{
        built::{self, Packages},
        harness::{self, Marked},
    },
    tidy::{Target, Test},
};

use super::verdict::Outcomes;

/// Runs the tests, those of one target of a package at once, and shows on
/// stderr what cargo and they print.
///
/// # Errors
/// If they do not compile, or cannot be started or read.
pub(super) fn run(tests: &BTreeSet<Test>) -> Result<Outcomes> {
    let programs = built::build(Packages::All, &[])?;
    let mut targets: BTreeMap<(String, Target), Vec<&Test>> = BTreeMap::new();
    for test in tests {
        targets.entry((test.package.clone(), test.target.clone())).or_default().push(test);
    }
    let mut outcomes = Outcomes::new();
    for (target, tests) in targets {
        for program in programs.get(&target).into_iter().flatten() {
            // Of several programs of a package, each has only some.
            let has = harness::list(program, Marked::Either)?;
            let own: Vec<&&Test> = tests.iter().filter(|test| has.contains(&test.path)).collect();
            let paths: Vec<String> = own.iter().map(|test| test.path.clone()).collect();
            if paths.is_empty() {
                continue;
            }
            let ran =
                harness::run(program, Marked::Either, &paths, &[], |line| eprintln!("{line}"))?;
            for outcome in ran.outcomes {
                if let Some(test) = own.iter().find(|test| test.path == outcome.path) {
                    outcomes.insert((**test).clone(), outcome.passed);
                }
            }
        }
    }
    Ok(outcomes)
}
