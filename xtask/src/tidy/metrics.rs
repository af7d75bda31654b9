use std::collections::BTreeMap;

use super::{
    items::Rust,
    tree::{Tree, Violation},
};

const DOCUMENT: &str = "docs/metrics.md";
const USES: [&str; 3] = ["counter", "gauge", "histogram"];
const DESCRIPTIONS: [&str; 3] = ["describe_counter", "describe_gauge", "describe_histogram"];

/// Every metric is described in the code and has a line in the document, and
/// the other way round.
pub(super) fn documented(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut used = BTreeMap::new();
    let mut described = BTreeMap::new();
    for (path, rust) in tree.rust() {
        names(path, rust, &USES, &mut used, &mut violations);
        names(path, rust, &DESCRIPTIONS, &mut described, &mut violations);
    }
    let documented = documented_names(tree);
    for (name, (path, line)) in &used {
        if !described.contains_key(name) {
            violations.push(Violation::at(path, *line, format!("{name} is not described")));
        }
        if !documented.contains_key(name) {
            let text = format!("{name} has no line in {DOCUMENT}");
            violations.push(Violation::at(path, *line, text));
        }
    }
    for (name, (path, line)) in described.iter().chain(&documented) {
        if !used.contains_key(name) {
            violations.push(Violation::at(path, *line, format!("no code writes {name}")));
        }
    }
    violations
}

type Places = BTreeMap<String, (String, usize)>;

/// The names that the macros in `macros` are given outside of tests.
fn names(
    path: &str,
    rust: &Rust,
    macros: &[&str],
    found: &mut Places,
    violations: &mut Vec<Violation>,
) {
    for (offset, word) in rust.scan.words() {
        if !macros.contains(&word) || rust.is_test(offset) {
            continue;
        }
        let (_, rest) = rust.scan.after(offset + word.len());
        if !rest.starts_with("!(") {
            continue;
        }
        let line = rust.scan.line(offset);
        let open = rust.scan.code.len() - rest.len() + 2;
        let (name_at, _) = rust.scan.after(open);
        let literal = rust.product_literals().find(|literal| literal.offset == name_at);
        match literal {
            Some(literal) => {
                found.entry(literal.text.clone()).or_insert_with(|| (path.to_owned(), line));
            }
            None => {
                let text = format!("{word}! without a literal name: nobody can search for it");
                violations.push(Violation::at(path, line, text));
            }
        }
    }
}

/// The names in the first column of the document's tables.
fn documented_names(tree: &Tree) -> Places {
    let lines = tree.text(DOCUMENT).unwrap_or_default().lines().enumerate();
    lines
        .filter_map(|(index, line)| {
            let (name, _) = line.strip_prefix("| `")?.split_once('`')?;
            Some((name.to_owned(), (DOCUMENT.to_owned(), index + 1)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{super::tree::testing::says, *};

    const CODE: &str = "fn a() { describe_counter!(\"walpost_a_total\", \"A\"); }\n\
                        fn b() { counter!(\n\"walpost_a_total\"); }\n";

    #[test]
    fn documented_metrics_are_fine() {
        let tables = "| metric | |\n|---|---|\n| `walpost_a_total` | `walpost_other` |\n";
        says(documented, &[("a.rs", CODE), (DOCUMENT, tables)], &[]);
    }

    #[test]
    fn a_metric_without_documentation_is_found() {
        let expected = "a.rs:2: walpost_a_total has no line in docs/metrics.md";
        says(documented, &[("a.rs", CODE)], &[expected]);
    }

    #[test]
    fn a_line_without_its_metric_is_found() {
        let tables = "| `walpost_a_total` | |\n| `walpost_b` | |\n";
        let expected = "docs/metrics.md:2: no code writes walpost_b";
        says(documented, &[("a.rs", CODE), (DOCUMENT, tables)], &[expected]);
    }

    #[test]
    fn a_metric_without_description_or_literal_is_found() {
        let code = "fn a() { gauge!(\"walpost_a\"); gauge!(NAME); }";
        let expected = [
            "a.rs:1: gauge! without a literal name: nobody can search for it",
            "a.rs:1: walpost_a is not described",
        ];
        says(documented, &[("a.rs", code), (DOCUMENT, "| `walpost_a` | |")], &expected);
    }
}
