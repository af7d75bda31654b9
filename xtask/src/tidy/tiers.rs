//! Each test is in one tier: everyday, or deep. See `xtask/src/suite`.

use super::{
    items::Rust,
    tree::{Tree, Violation},
};

const MARK: &str = "deep: ";
/// Settings of a target that would leave its tests out of both tiers.
const HIDING: [&str; 2] = ["test = false", "harness = false"];

/// A test of a package that `cargo test` runs is everyday, or deep with a mark that
/// says why; one of any other package is deep without a mark.
pub(super) fn exact(tree: &Tree) -> Vec<Violation> {
    let everyday = everyday_folders(tree.text("Cargo.toml").unwrap_or_default());
    let mut violations = Vec::new();
    for (path, rust) in tree.rust() {
        let is_everyday = everyday.iter().any(|folder| path.starts_with(&format!("{folder}/")));
        for (offset, _) in rust.scan.words().filter(|(_, word)| *word == "ignore") {
            let text = match reason(rust, offset) {
                Ignored::No => continue,
                Ignored::Marked(reason) if is_everyday && is_whole(&reason) => continue,
                Ignored::Marked(_) if is_everyday => {
                    "an ignored test says why it is deep: #[ignore = \"deep: needs Redis\"]"
                }
                Ignored::Marked(_) => "all tests of this package are deep: remove #[ignore]",
                Ignored::Conditionally => "a test is ignored always or never, not by a condition",
            };
            violations.push(Violation::at(path, rust.scan.line(offset), text));
        }
    }
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with("Cargo.toml")) {
        for (index, line) in text.lines().enumerate() {
            if HIDING.contains(&line.trim()) && !path.starts_with("fuzz/") {
                let text = format!("{} would leave tests out of every tier", line.trim());
                violations.push(Violation::at(path, index + 1, text));
            }
        }
    }
    violations
}

enum Ignored {
    No,
    /// By `#[ignore]`, or `#[ignore = "reason"]`.
    Marked(String),
    /// By `#[cfg_attr(…, ignore)]`.
    Conditionally,
}

/// What the word `ignore` at this offset does.
fn reason(rust: &Rust, offset: usize) -> Ignored {
    let before = rust.scan.code[..offset].trim_end();
    if before.ends_with(',') && is_in_attribute(before) {
        return Ignored::Conditionally;
    }
    if !before.ends_with("#[") {
        return Ignored::No;
    }
    let end = offset + rust.scan.code[offset..].find(']').unwrap_or_default();
    let literal = rust.scan.literals.iter().find(|one| (offset..end).contains(&one.offset));
    Ignored::Marked(literal.map_or_else(String::new, |literal| literal.text.clone()))
}

/// Whether text that ends with `before` is inside of `#[…]`, as in
/// `#[cfg_attr(unix, ignore)]`.
fn is_in_attribute(before: &str) -> bool {
    before.rfind("#[").is_some_and(|start| !before[start..].contains(']'))
}

fn is_whole(reason: &str) -> bool {
    reason.strip_prefix(MARK).is_some_and(|why| !why.trim().is_empty())
}

/// The list `default-members` of the workspace.
fn everyday_folders(manifest: &str) -> Vec<&str> {
    let lines = manifest.lines().skip_while(|line| !line.starts_with("default-members"));
    let own = lines.skip(1).take_while(|line| !line.starts_with(']'));
    own.map(|line| line.trim().trim_matches([',', '"'])).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::tree::testing::says, *};

    const MANIFEST: (&str, &str) =
        ("Cargo.toml", "[workspace]\ndefault-members = [\n    \"crates/a\",\n]\n");

    #[test]
    fn deep_tests_of_everyday_packages_say_why() {
        let text = "#[test]\n#[ignore = \"deep: needs Redis\"]\nfn a() {}\n#[test]\n\
                    #[ignore = \"slow\"]\nfn b() {}\n#[test]\n#[ignore]\nfn c() {}\n\
                    #[cfg_attr(unix, ignore)]\nfn d() {}\nfn e(f: u8, ignore: u8) {}\n";
        let mark = "an ignored test says why it is deep: #[ignore = \"deep: needs Redis\"]";
        let expected = [
            format!("crates/a/src/a.rs:5: {mark}"),
            format!("crates/a/src/a.rs:8: {mark}"),
            "crates/a/src/a.rs:10: a test is ignored always or never, not by a condition"
                .to_owned(),
        ];
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        says(exact, &[MANIFEST, ("crates/a/src/a.rs", text)], &expected);
    }

    #[test]
    fn tests_of_other_packages_need_no_mark() {
        let text = "#[test]\n#[ignore = \"deep: slow\"]\nfn a() {}\n";
        let expected =
            "examples/b/src/a.rs:2: all tests of this package are deep: remove #[ignore]";
        says(exact, &[MANIFEST, ("examples/b/src/a.rs", text)], &[expected]);
        says(exact, &[MANIFEST, ("examples/b/src/a.rs", "#[test]\nfn a() {}\n")], &[]);
    }

    #[test]
    fn no_target_hides_its_tests() {
        let text = "[[test]]\nname = \"x\"\ntest = false\n";
        let expected = "crates/a/Cargo.toml:3: test = false would leave tests out of every tier";
        says(exact, &[MANIFEST, ("crates/a/Cargo.toml", text)], &[expected]);
    }
}
