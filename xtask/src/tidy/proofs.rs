use super::tree::{Tree, Violation};

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

fn has_tests(tree: &Tree, command: &str) -> bool {
    let mut words = command.split(' ');
    let package = match words.next() {
        None | Some("walpost-tests") => "tests".to_owned(),
        Some("xtask") => "xtask".to_owned(),
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
    tree.rust().filter(|(path, _)| path.starts_with(&folder)).any(|(_, rust)| {
        let mut names = rust.functions.iter().filter(|f| rust.is_test(f.span.start));
        names.any(|function| function.name.contains(filter))
    })
}

#[cfg(test)]
mod tests {
    use super::{super::tree::testing::says, *};

    const TESTS: (&str, &str) = ("crates/a/tests/it/b.rs", "fn one_holds() {}");
    const UNIT: (&str, &str) = ("crates/a/src/c.rs", "#[cfg(test)]\nmod tests { fn two() {} }");

    #[test]
    fn tests_that_exist_are_fine() {
        let text = "`cargo test -p a` `cargo test -p a --test it one_` `cargo test -p a two`\n\
                    `cargo test -p walpost-tests --test e2e`";
        let whole = ("tests/e2e/main.rs", "fn all() {}");
        says(name_tests, &[("a.md", text), TESTS, UNIT, whole], &[]);
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
