use std::{collections::BTreeMap, fmt};

use anyhow::Result;

use super::{items::Rust, root, tree::Tree};

/// The tests of the repository by the names of their functions; several may
/// have the same.
pub(crate) type Tests = BTreeMap<String, Vec<Test>>;

/// A test, as cargo finds it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Test {
    pub(crate) package: String,
    pub(crate) target: Target,
    /// With its modules, as `world::tests::it_turns`.
    pub(crate) path: String,
}

/// What of a package has a test.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Lib,
    /// All programs of the package.
    Bins,
    Test(String),
}

impl Target {
    /// How cargo is told.
    pub(crate) fn arguments(&self) -> Vec<&str> {
        match self {
            Self::Lib => vec!["--lib"],
            Self::Bins => vec!["--bins"],
            Self::Test(name) => vec!["--test", name],
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = self.target.arguments().join(" ");
        write!(f, "-p {} {target} {}", self.package, self.path)
    }
}

/// Finds all tests of the repository of this crate.
///
/// # Errors
/// If a file cannot be read.
pub(crate) fn tests() -> Result<Tests> {
    Ok(tests_of(&Tree::load(root())?))
}

pub(super) fn tests_of(tree: &Tree) -> Tests {
    let mut tests = Tests::new();
    for (path, rust) in tree.rust() {
        let Some((package, folder)) = package(tree, path) else { continue };
        let (target, modules) = target(tree, &folder, &path[folder.len()..]);
        for function in rust.tests() {
            let path = full_name(rust, &modules, &function.name, function.span.start);
            let test = Test { package: package.to_owned(), target: target.clone(), path };
            tests.entry(function.name.clone()).or_default().push(test);
        }
    }
    tests
}

fn full_name(rust: &Rust, modules: &[String], name: &str, offset: usize) -> String {
    let inline = rust.modules_at(offset).into_iter().map(str::to_owned);
    let parts: Vec<String> = modules.iter().cloned().chain(inline).collect();
    parts.iter().map(|part| format!("{part}::")).collect::<String>() + name
}

/// Name and folder, with its `/`, of the package that has the file.
fn package<'a>(tree: &'a Tree, path: &str) -> Option<(&'a str, String)> {
    let folders = path.match_indices('/').map(|(at, _)| &path[..=at]);
    let mut manifests = folders.filter_map(|folder| {
        let text = tree.text(&format!("{folder}Cargo.toml"))?;
        let name = text.lines().find_map(|line| line.strip_prefix("name = \""))?;
        Some((name.trim_end_matches('"'), folder.to_owned()))
    });
    manifests.next_back()
}

/// What a file belongs to, and its module there.
fn target(tree: &Tree, folder: &str, file: &str) -> (Target, Vec<String>) {
    let mut parts = file.trim_end_matches(".rs").split('/');
    let first = parts.next().unwrap_or_default();
    let target = if first != "src" {
        let name = if first == "tests" { parts.next().unwrap_or_default() } else { first };
        Target::Test(name.to_owned())
    } else if tree.text(&format!("{folder}src/lib.rs")).is_some() {
        Target::Lib
    } else {
        Target::Bins
    };
    let roots = ["lib", "main", "mod"];
    (target, parts.filter(|part| !roots.contains(part)).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::{super::tree::testing::tree, *};

    const TEST: &str = "#[test]\nfn a() {}\nfn b() {}";
    const INLINE: &str = "mod tests {\n#[tokio::test(flavor = \"x\")]\nasync fn a() {}\n}";

    #[test]
    fn each_is_found_with_its_package_target_and_modules() {
        let files = [
            ("crates/w-x/Cargo.toml", "[package]\nname = \"w-x\"\n[lib]\nname = \"y\""),
            ("crates/w-x/src/lib.rs", INLINE),
            ("crates/w-x/src/c/mod.rs", INLINE),
            ("crates/w-x/src/c/tests.rs", TEST),
            ("crates/w-x/tests/it/main.rs", TEST),
            ("crates/w-x/tests/it/c.rs", TEST),
            ("crates/w-x/tests/d.rs", TEST),
            ("e/Cargo.toml", "name = \"e\""),
            ("e/src/main.rs", INLINE),
            ("e/f/main.rs", TEST),
        ];
        let tests = tests_of(&tree(&files));
        assert_eq!(tests.keys().collect::<Vec<_>>(), ["a"]);
        let mut found: Vec<String> = tests["a"].iter().map(ToString::to_string).collect();
        found.sort();
        let expected = [
            "-p e --bins tests::a",
            "-p e --test f a",
            "-p w-x --lib c::tests::a",
            "-p w-x --lib c::tests::a",
            "-p w-x --lib tests::a",
            "-p w-x --test d a",
            "-p w-x --test it a",
            "-p w-x --test it c::a",
        ];
        assert_eq!(found, expected);
    }
}
