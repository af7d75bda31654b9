use super::{
    named::tests_of,
    tree::{Tree, Violation},
};
use crate::systems::{self, DOCUMENT};

const START: &str = "cargo test -p ";

/// A test command in a document, `cargo test -p crate --test target filter`
/// between backticks, names tests that the crate has.
pub(super) fn name_tests(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with(".md")) {
        for (index, line) in text.lines().enumerate() {
            for command in line.split('`').filter_map(|text| text.strip_prefix(START)) {
                if !has_tests(tree, command) {
                    let text = format!("{START}{command} runs no test");
                    violations.push(Violation::at(path, index + 1, text));
                }
            }
        }
    }
    violations
}

/// Each row of the document that `cargo xtask systems` runs names tests that
/// there are.
pub(super) fn systems(tree: &Tree) -> Vec<Violation> {
    let Some(text) = tree.text(DOCUMENT) else { return Vec::new() };
    let rows = match systems::rows(text) {
        Ok(rows) => rows,
        Err(error) => return vec![Violation::at(DOCUMENT, 0, format!("{error:#}"))],
    };
    let tests = tests_of(tree);
    let wrong = rows.iter().filter_map(|row| {
        let verdict = systems::find(row, &tests).err()?;
        Some(Violation::at(DOCUMENT, row.line, verdict.to_string()))
    });
    wrong.collect()
}

fn has_tests(tree: &Tree, command: &str) -> bool {
    let mut words = command.split(' ');
    let package = match words.next() {
        None | Some("walpost-tests") => "tests".to_owned(),
        Some("xtask") => "xtask".to_owned(),
        Some(package) if tree.text(&format!("examples/{package}/Cargo.toml")).is_some() => {
            format!("examples/{package}")
        }
        Some(package) => format!("crates/{package}"),
    };
    let (mut folder, mut filter) = (format!("{package}/"), "");
    while let Some(word) = words.next() {
        if word == "--test" {
            let target = words.next().unwrap_or_default();
            let tests = if package == "tests" { "" } else { "tests/" };
            folder = format!("{package}/{tests}{target}/");
        } else {
            filter = word;
        }
    }
    tree.rust().filter(|(path, _)| path.starts_with(&folder)).any(|(path, rust)| {
        // Cargo compares with the name and the modules around it.
        let is_meant = path[folder.len()..].contains(filter);
        let mut names = rust.functions.iter().filter(|f| rust.is_test(f.span.start));
        names.any(|function| is_meant || function.name.contains(filter))
    })
}

#[cfg(test)]
mod tests {
    use super::{super::tree::testing::says, *};

    const TESTS: (&str, &str) = ("crates/a/tests/it/b.rs", "fn one_holds() {}");
    const UNIT: (&str, &str) = ("crates/a/src/c.rs", "#[cfg(test)]\nmod tests { fn two() {} }");

    #[test]
    fn tests_that_exist_are_fine() {
        let text = "`cargo test -p a --test it b` `cargo test -p a` `cargo test -p a --test it one_` `cargo test -p a two`\n\
                    `cargo test -p walpost-tests --test e2e` `cargo test -p shop --test it three`";
        let whole = ("tests/e2e/main.rs", "fn all() {}");
        let example =
            [("examples/shop/Cargo.toml", ""), ("examples/shop/tests/it/a.rs", "fn three() {}")];
        says(name_tests, &[("a.md", text), TESTS, UNIT, whole, example[0], example[1]], &[]);
    }

    #[test]
    fn rows_without_tests_are_found() {
        let text = "| what | how | tests |\n|---|---|---|\n| a | b | `one_holds` |\n| c | d | |";
        let marked = ("crates/a/tests/it/b.rs", "#[test]\nfn one_holds() {}");
        let files = [(DOCUMENT, text), ("crates/a/Cargo.toml", "name = \"a\""), marked];
        says(systems, &files, &["docs/systems.md:4: names no test"]);
        says(systems, &[(DOCUMENT, "")], &["docs/systems.md: has no row"]);
    }

    #[test]
    fn tests_that_are_gone_are_found() {
        let text = "\n- `cargo test -p a --test it two`\n- `cargo test -p b one`";
        let expected = [
            "a.md:2: cargo test -p a --test it two runs no test",
            "a.md:3: cargo test -p b one runs no test",
        ];
        says(name_tests, &[("a.md", text), TESTS, UNIT], &expected);
    }
}
