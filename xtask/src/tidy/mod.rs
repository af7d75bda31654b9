//! The house rules as tests: `cargo xtask tidy`, and a test of this crate.
//!
//! What rustfmt and clippy can check is left to them. A new rule is a function
//! over the [`Tree`], a line in [`RULES`], and a test with a planted violation.

mod crates;
mod failpoints;
mod items;
mod knots;
mod links;
mod metrics;
mod migrations;
mod named;
mod places;
mod proofs;
mod readme;
mod scan;
mod sizes;
mod source;
mod tiers;
mod tree;

use std::path::Path;

use anyhow::{Result, bail};

pub(crate) use named::{Target, Test, Tests, tests};
use tree::{Tree, Violation};

type Rule = fn(&Tree) -> Vec<Violation>;

const RULES: [(&str, Rule); 16] = [
    ("functions are short", sizes::functions),
    ("files are short", sizes::files),
    ("crates use only what lies below them", crates::directions),
    ("modules form no cycle", knots::listed),
    ("crates describe themselves", crates::manifests),
    ("no unsafe code outside walpost-librdkafka", source::no_unsafe),
    ("each test is in one tier", tiers::exact),
    ("no test sleeps", source::no_sleep_in_tests),
    ("metrics are documented", metrics::documented),
    ("each failpoint has one test", failpoints::tested),
    ("migrations are numbered", migrations::numbered),
    ("the example of the README compiles", readme::example),
    ("links and paths in documents lead somewhere", links::resolve),
    ("proofs in documents name tests", proofs::name_tests),
    ("rows of systems name tests", proofs::systems),
    ("no registry hosts, no paths of a machine", places::neutral),
];

/// Checks the repository of this crate and prints what breaks a rule.
///
/// # Errors
/// If a file cannot be read, or if a rule is broken.
pub(crate) fn run() -> Result<()> {
    let violations = check(&Tree::load(root())?);
    for violation in &violations {
        eprintln!("{violation}");
    }
    match violations.len() {
        0 => Ok(()),
        count => bail!("{count} violations of the house rules"),
    }
}

/// The folder of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (name, rule) in RULES {
        let found = rule(tree).into_iter().map(|violation| violation.of(name));
        violations.extend(found);
    }
    violations.sort();
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_tidy() {
        let violations = check(&Tree::load(root()).unwrap());
        let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
    }
}
