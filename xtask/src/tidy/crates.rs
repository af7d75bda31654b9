use super::tree::{Tree, Violation};

/// What a crate of the workspace may use, in `[dependencies]` and
/// `[build-dependencies]`. Tests may use anything.
#[derive(Debug)]
enum May {
    Use(&'static [&'static str]),
    UseAll,
}

use May::{Use, UseAll};

/// Every crate with what it may use, and whether it may name librdkafka.
const CRATES: &[(&str, May, bool)] = &[
    ("walpost-event", Use(&[]), false),
    ("walpost-pgoutput", Use(&["event"]), false),
    ("walpost-router", Use(&["event"]), false),
    ("walpost-connector", Use(&["encode", "event", "router"]), false),
    ("walpost-takeover", Use(&["event"]), false),
    ("walpost-shadow", Use(&["event"]), false),
    ("walpost-encode", Use(&["event", "router"]), false),
    ("walpost-contracts", Use(&[]), false),
    ("walpost-outbox", Use(&["contracts", "event", "postgres"]), false),
    ("walpost-postgres", Use(&[]), false),
    ("walpost-prepared", Use(&[]), false),
    ("walpost-prune", Use(&["postgres"]), false),
    ("walpost-migrate", Use(&["postgres"]), false),
    (
        "walpost-relay",
        Use(&["encode", "event", "pgoutput", "postgres", "router", "takeover"]),
        false,
    ),
    ("walpost-librdkafka", Use(&[]), true),
    ("walpost-kafka", Use(&["event", "librdkafka", "relay"]), true),
    ("walpost-failpoint", Use(&[]), false),
    ("walpost-connect", Use(&["connector", "event", "postgres"]), false),
    ("walpost-inbox", Use(&["event", "postgres", "prepared", "prune"]), false),
    ("walpost-idempotency", Use(&["failpoint", "postgres", "prepared", "prune"]), false),
    ("walpost-webhook", Use(&["event", "failpoint", "inbox", "postgres", "prune", "relay"]), false),
    ("walpost-consumer", Use(&["event", "failpoint", "librdkafka", "postgres", "prepared"]), true),
    ("walpost-consumer-sqlx", Use(&["consumer"]), true),
    ("walpost-local", Use(&[]), false),
    ("walpost-consumer-test", Use(&["consumer", "local", "migrate"]), false),
    ("walpost", UseAll, true),
    ("walpost-testkit", UseAll, true),
    ("walpost-bench", UseAll, true),
    ("walpost-tests", UseAll, true),
    ("erp-round-trip", UseAll, false),
    ("shipping-service", UseAll, true),
    ("signup", UseAll, false),
    ("checkout", UseAll, false),
    ("subscription", UseAll, false),
    ("upload", UseAll, false),
    ("walpost-example-stand", UseAll, false),
    ("xtask", Use(&["local"]), false),
];

/// The crate that alone has code without the compiler's checks, and therefore
/// lints of its own.
pub(super) const UNSAFE_CRATE: &str = "walpost-librdkafka";

/// What every crate says of itself, and what those say that can be published.
const OF_ALL: [&str; 2] = ["description", "license"];
const OF_PUBLISHED: [&str; 4] = ["repository", "readme", "keywords", "categories"];

/// A manifest, read line by line: the tables and keys that the rules ask for.
struct Manifest<'a> {
    path: &'a str,
    text: &'a str,
}

struct Dependency<'a> {
    line: usize,
    name: &'a str,
    for_tests: bool,
}

impl<'a> Manifest<'a> {
    fn all(tree: &'a Tree) -> impl Iterator<Item = Self> {
        let members = ["crates/", "examples/", "tests/", "xtask/"];
        let is_member = move |path: &str| members.iter().any(|member| path.starts_with(member));
        tree.files()
            .filter(move |(path, _)| is_member(path) && path.ends_with("/Cargo.toml"))
            .map(|(path, text)| Self { path, text })
    }

    /// Table, key and value of every line that has them, with its number.
    fn entries(&self) -> impl Iterator<Item = (usize, &'a str, &'a str, &'a str)> {
        let mut table = "";
        self.text.lines().enumerate().filter_map(move |(index, line)| {
            if let Some(name) = line.strip_prefix('[') {
                table = name.trim_end_matches(']');
                return None;
            }
            let (key, value) = line.split_once('=')?;
            let key = key.trim();
            (!key.starts_with('#')).then(|| (index + 1, table, key, value.trim()))
        })
    }

    fn name(&self) -> &'a str {
        self.value("package", "name").unwrap_or_default().trim_matches('"')
    }

    fn value(&self, table: &str, key: &str) -> Option<&'a str> {
        self.entries().find(|entry| (entry.1, entry.2) == (table, key)).map(|entry| entry.3)
    }

    fn dependencies(&self) -> impl Iterator<Item = Dependency<'a>> {
        self.entries().filter_map(|(line, table, key, _)| {
            // Also [target.'cfg(unix)'.dependencies].
            let kind = table.rsplit('.').next().unwrap_or_default();
            let for_tests = kind == "dev-dependencies";
            let name = key.split('.').next().unwrap_or_default();
            let is_list = for_tests || kind == "dependencies" || kind == "build-dependencies";
            is_list.then_some(Dependency { line, name, for_tests })
        })
    }
}

pub(super) fn directions(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for manifest in Manifest::all(tree) {
        let name = manifest.name();
        let Some((_, may, kafka)) = CRATES.iter().find(|(known, ..)| *known == name) else {
            let text = format!("crate {name:?} has no line in the table of xtask/src/tidy");
            violations.push(Violation::at(manifest.path, 0, text));
            continue;
        };
        for dependency in manifest.dependencies() {
            let Dependency { line, name: uses, for_tests } = dependency;
            let is_allowed = match uses.strip_prefix("walpost-") {
                Some(other) => for_tests || may.use_of(other),
                None if matches!(uses, "rdkafka" | "rdkafka-sys") => *kafka,
                None => true,
            };
            if !is_allowed {
                let text = format!("{name} must not depend on {uses}");
                violations.push(Violation::at(manifest.path, line, text));
            }
        }
    }
    violations
}

impl May {
    fn use_of(&self, other: &str) -> bool {
        match self {
            Use(list) => list.contains(&other),
            UseAll => true,
        }
    }
}

pub(super) fn manifests(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for manifest in Manifest::all(tree) {
        let is_published = manifest.value("package", "publish") != Some("false");
        let more: &[&str] = if is_published { &OF_PUBLISHED } else { &[] };
        for key in OF_ALL.iter().chain(more) {
            let inherited = format!("{key}.workspace");
            if manifest.value("package", key).is_none()
                && manifest.value("package", &inherited).is_none()
            {
                violations.push(Violation::at(manifest.path, 0, format!("{key} is missing")));
            }
        }
        if manifest.value("lints", "workspace").is_none() && manifest.name() != UNSAFE_CRATE {
            let text = "the lints of the workspace are missing: [lints] workspace = true";
            violations.push(Violation::at(manifest.path, 0, text));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::{super::tree::testing::says, *};

    #[test]
    fn a_crate_uses_only_what_lies_below_it() {
        let router = "[package]\nname = \"walpost-router\"\n[dependencies]\n\
                      walpost-event.workspace = true\nwalpost-relay = { path = \"\" }\n\
                      rdkafka.workspace = true\n[dev-dependencies]\n\
                      walpost-testkit.workspace = true\n";
        let path = "crates/walpost-router/Cargo.toml";
        says(
            directions,
            &[(path, router)],
            &[
                "crates/walpost-router/Cargo.toml:5: walpost-router must not depend on \
                 walpost-relay",
                "crates/walpost-router/Cargo.toml:6: walpost-router must not depend on rdkafka",
            ],
        );
    }

    #[test]
    fn dependencies_of_a_platform_count() {
        let text = "[package]\nname = \"walpost-event\"\n[target.'cfg(unix)'.dependencies]\n\
                    walpost-router.workspace = true\n";
        let expected = "crates/e/Cargo.toml:4: walpost-event must not depend on walpost-router";
        says(directions, &[("crates/e/Cargo.toml", text)], &[expected]);
    }

    #[test]
    fn a_crate_that_nobody_placed_is_named() {
        let expected =
            "crates/x/Cargo.toml: crate \"walpost-x\" has no line in the table of xtask/src/tidy";
        let text = "[package]\nname = \"walpost-x\"\n";
        says(directions, &[("crates/x/Cargo.toml", text)], &[expected]);
    }

    #[test]
    fn a_crate_describes_itself() {
        let private = "[package]\nname = \"a\"\ndescription = \"A\"\nlicense.workspace = true\n\
                       publish = false\n[lints]\nworkspace = true\n";
        says(manifests, &[("crates/a/Cargo.toml", private)], &[]);
        let published = private.replace(
            "publish = false",
            "repository = \"r\"\nreadme = \"r\"\nkeywords = []\ncategories.workspace = true",
        );
        says(manifests, &[("crates/a/Cargo.toml", &published)], &[]);
        says(
            manifests,
            &[("crates/a/Cargo.toml", &published.replace("keywords", "words"))],
            &["crates/a/Cargo.toml: keywords is missing"],
        );
        says(
            manifests,
            &[(
                "crates/a/Cargo.toml",
                "[package]\nname = \"a\"\n# license = \"x\"\npublish = false",
            )],
            &[
                "crates/a/Cargo.toml: description is missing",
                "crates/a/Cargo.toml: license is missing",
                "crates/a/Cargo.toml: the lints of the workspace are missing: [lints] workspace \
                 = true",
            ],
        );
    }
}
