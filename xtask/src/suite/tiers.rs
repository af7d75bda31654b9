//! Which tests of which executables are in a tier.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    built::{self, Program, Programs},
    harness::{self, Marked},
    metadata,
};
use crate::tidy;

/// Tests by what they cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// What `cargo test` runs.
    Everyday,
    /// All others.
    Deep,
}

/// The tests of one executable that are in a tier.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    /// As `walpost-relay --test it`.
    pub(crate) name: String,
    pub(crate) program: Program,
    pub(crate) marked: Marked,
    pub(crate) tests: Vec<String>,
}

/// The tests of these executables that are in this tier.
///
/// # Errors
/// If cargo or an executable fails.
pub(crate) fn parts(programs: &Programs, tier: Tier) -> Result<Vec<Part>> {
    let everyday = everyday_packages()?;
    let mut parts = Vec::new();
    for ((package, target), programs) in programs {
        let marked = match (tier, everyday.contains(package)) {
            (Tier::Everyday, true) => Marked::No,
            (Tier::Everyday, false) => continue,
            (Tier::Deep, true) => Marked::Yes,
            (Tier::Deep, false) => Marked::Either,
        };
        for program in programs {
            let tests = harness::list(program, marked)?;
            if !tests.is_empty() {
                let name = format!("{package} {}", target.arguments().join(" "));
                parts.push(Part { name, program: program.clone(), marked, tests });
            }
        }
    }
    Ok(parts)
}

/// Tests of the source that no executable has, for example because of a feature that
/// is off: they are in no tier.
///
/// # Errors
/// If a source or an executable cannot be read.
pub(crate) fn without_executable(programs: &Programs) -> Result<Vec<String>> {
    let mut built: BTreeMap<(String, String), usize> = BTreeMap::new();
    for ((package, _), programs) in programs {
        for program in programs {
            for path in harness::list(program, Marked::Either)? {
                let name = path.rsplit("::").next().unwrap_or(&path).to_owned();
                *built.entry((package.clone(), name)).or_default() += 1;
            }
        }
    }
    let mut missing = Vec::new();
    for (name, tests) in tidy::tests()? {
        for test in tests {
            match built.get_mut(&(test.package.clone(), name.clone())) {
                Some(left) if *left > 0 => *left -= 1,
                _ => missing.push(test.to_string()),
            }
        }
    }
    Ok(missing)
}

/// Of each part the tests with `word` in the path, or all if it is in the name.
pub(crate) fn only(parts: Vec<Part>, word: &str) -> Vec<Part> {
    let chosen = |mut part: Part| {
        if !part.name.contains(word) {
            part.tests.retain(|test| test.contains(word));
        }
        (!part.tests.is_empty()).then_some(part)
    };
    parts.into_iter().filter_map(chosen).collect()
}

/// The names of `default-members`.
fn everyday_packages() -> Result<BTreeSet<String>> {
    let metadata = metadata()?;
    default_members(&metadata).context("cargo metadata names no default members")
}

fn default_members(metadata: &Value) -> Option<BTreeSet<String>> {
    let ids = metadata["workspace_default_members"].as_array()?;
    ids.iter().map(|id| built::package(id.as_str()?).map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn part(name: &str, tests: &[&str]) -> Part {
        let program = Program { path: "p".into(), folder: "f".into() };
        let tests = tests.iter().map(|&test| test.to_owned()).collect();
        Part { name: name.to_owned(), program, marked: Marked::No, tests }
    }

    #[test]
    fn a_word_chooses_executables_or_tests() {
        let all = vec![part("a --lib", &["one::x", "two::y"]), part("b --test it", &["one::z"])];
        let chosen = only(all.clone(), "one");
        assert_eq!(chosen, [part("a --lib", &["one::x"]), part("b --test it", &["one::z"])]);
        assert_eq!(only(all.clone(), "b --test"), [part("b --test it", &["one::z"])]);
        assert_eq!(only(all, "three"), []);
    }

    #[test]
    fn default_members_are_read() {
        let metadata =
            json!({"workspace_default_members": ["path+file:///w/a#0.1.0", "x#b@0.1.0"]});
        let names = default_members(&metadata).unwrap();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(default_members(&json!({})), None);
    }
}
