use std::collections::{BTreeMap, BTreeSet};

use super::tree::{Tree, Violation};

/// Each name that `fn name` of a `failpoint.rs` gives is named by a test, and in
/// one package by only one for each action: alone, or in
/// `whose/name@count:action`.
pub(super) fn tested(tree: &Tree) -> Vec<Violation> {
    let mut named: BTreeMap<Use<'_>, BTreeSet<Place<'_>>> = BTreeMap::new();
    for (path, rust) in tree.rust().filter(|(_, rust)| rust.is_test_file()) {
        for literal in &rust.scan.literals {
            let function = rust.function_at(literal.offset).map_or("", |f| f.name.as_str());
            named.entry(Use::of(path, &literal.text)).or_default().insert((path, function));
        }
    }
    let mut violations = Vec::new();
    for (path, rust) in tree.rust().filter(|(path, _)| path.ends_with("/failpoint.rs")) {
        for literal in rust.product_literals() {
            if rust.function_at(literal.offset).is_none_or(|function| function.name != "name") {
                continue;
            }
            let line = rust.scan.line(literal.offset);
            let uses: Vec<_> = named.iter().filter(|(used, _)| used.name == literal.text).collect();
            if uses.is_empty() {
                let text = format!("failpoint {} is named by no test", literal.text);
                violations.push(Violation::at(path, line, text));
            }
            for (used, places) in uses.into_iter().filter(|(_, places)| places.len() > 1) {
                let places: Vec<String> =
                    places.iter().map(|(path, function)| format!("{function} in {path}")).collect();
                let text = format!(
                    "failpoint {} with action {:?} is named by several: {}",
                    used.name,
                    used.action,
                    places.join(", ")
                );
                violations.push(Violation::at(path, line, text));
            }
        }
    }
    violations
}

/// Path and function.
type Place<'a> = (&'a str, &'a str);

/// A failpoint as a test names it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Use<'a> {
    package: &'a str,
    name: &'a str,
    action: &'a str,
}

impl<'a> Use<'a> {
    fn of(path: &'a str, literal: &'a str) -> Self {
        let (point, action) = literal.split_once(':').unwrap_or((literal, ""));
        let point = point.rsplit('/').next().unwrap_or_default();
        let name = point.split('@').next().unwrap_or_default();
        let package = match path.split_once("/tests/") {
            Some((package, _)) => package,
            None => path.split('/').next().unwrap_or_default(),
        };
        Self { package, name, action }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tree::testing::says, *};

    const POINTS: (&str, &str) = (
        "crates/a/src/failpoint.rs",
        "fn name() { match b { A => \"after_a\", B => \"after_b\" } }\nfn act() { \"other\" }",
    );

    #[test]
    fn one_test_for_each_is_fine() {
        let tests = "fn a() { run(\"after_a@2:kill\") }\nfn b() { run(\"after_b\") }\n\
                     fn c() { run(\"a/after_a:stop\") }";
        let others = "fn d() { run(\"after_a:kill\") }";
        let files = [POINTS, ("crates/a/tests/it/kill.rs", tests), ("crates/b/tests/b.rs", others)];
        says(tested, &files, &[]);
    }

    #[test]
    fn none_or_several_are_found() {
        let tests = "fn a() { run(\"after_a:kill\") }\nfn b() { run(\"a/after_a@9:kill\") }";
        says(
            tested,
            &[POINTS, ("crates/a/tests/it/kill.rs", tests)],
            &[
                "crates/a/src/failpoint.rs:1: failpoint after_a with action \"kill\" is named by \
                 several: a in crates/a/tests/it/kill.rs, b in crates/a/tests/it/kill.rs",
                "crates/a/src/failpoint.rs:1: failpoint after_b is named by no test",
            ],
        );
    }
}
