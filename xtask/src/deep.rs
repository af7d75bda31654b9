//! `cargo xtask deep`: every test that `cargo test` does not run, and the checks that
//! take long.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, ensure};

use crate::{
    options::Options,
    suite::{
        built::{self, Packages},
        cargo, harness, table,
        tiers::{self, Part, Tier},
    },
    tidy, tools,
};

/// The older PostgreSQL on which the everyday tests run once more.
const OLDER_POSTGRES: &str = "15";
/// Simulated schedules of relay and consumer.
const SCHEDULES: &str = "100000";
/// Crates that applications link.
const PUBLIC: [&str; 10] = [
    "walpost-consumer",
    "walpost-consumer-sqlx",
    "walpost-consumer-test",
    "walpost-contracts",
    "walpost-idempotency",
    "walpost-inbox",
    "walpost-migrate",
    "walpost-outbox",
    "walpost-postgres",
    "walpost-webhook",
];

/// Tests that an item of their own builds with a feature.
const UNDER_FEATURES: [&str; 1] = ["-p walpost-kafka --test it oidc::"];

/// One line of the table.
struct Item {
    name: String,
    work: Work,
}

enum Work {
    /// Tests of one executable, with variables of their environment.
    Tests(Part, Vec<(&'static str, String)>),
    /// Cargo, with arguments.
    Cargo(Vec<String>),
}

impl Item {
    fn cargo(name: impl Into<String>, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Self { name: name.into(), work: Work::Cargo(arguments) }
    }

    /// Of a test executable its tests, of another item 1.
    fn count(&self) -> usize {
        match &self.work {
            Work::Tests(part, _) => part.tests.len(),
            Work::Cargo(_) => 1,
        }
    }

    /// What of this item is about `word`.
    fn only(self, word: &str) -> Option<Self> {
        match self.work {
            Work::Tests(part, environment) if !self.name.contains(word) => {
                let part = tiers::only(vec![part], word).pop()?;
                Some(Self { name: self.name, work: Work::Tests(part, environment) })
            }
            work => self.name.contains(word).then_some(Self { name: self.name, work }),
        }
    }
}

/// How an item ended.
struct Ended {
    name: String,
    tests: usize,
    failed: Vec<String>,
    seconds: f64,
    cpu_seconds: f64,
}

/// Runs the items, all of them also after one failed, and prints what took how long.
///
/// # Errors
/// If an option is wrong, a tool is missing, or an item failed.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let options = Options::parse(arguments, &["--only", "--slice", "--without"], &["--list"])?;
    let without = options.value("--without").unwrap_or_default();
    if !options.has("--list") {
        tools::check(without)?;
    }
    let mut items = items()?;
    if let Some(word) = options.value("--only") {
        items = items.into_iter().filter_map(|item| item.only(word)).collect();
    }
    if let Some(text) = options.value("--slice") {
        let (number, of) = slice(text)?;
        let mut index = 0..;
        items.retain(|_| index.next().is_some_and(|index| index % of == number - 1));
    }
    let (items, left_out): (Vec<_>, Vec<_>) =
        items.into_iter().partition(|item| without.is_empty() || !item.name.contains(without));
    ensure!(!items.is_empty(), "no item matches; `cargo xtask deep --list` prints all");
    if options.has("--list") {
        list(&items);
        return Ok(());
    }
    let logs = tidy::root().join("target/deep");
    fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
    let total = items.len();
    let mut ended = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let head = format!("[{:>2}/{total}] {}", index + 1, item.name);
        eprintln!("{head}: {}", counted(item.count(), "test"));
        let log = logs.join(format!("{}.log", item.name.replace([' ', '/'], "_")));
        let one = run_one(item, &log)?;
        match one.failed.as_slice() {
            [] => eprintln!("{head}: ok in {:.0} s", one.seconds),
            failed => {
                eprintln!("{head}: FAILED, {}; see {}", failed.join(", "), log.display());
            }
        }
        ended.push(one);
    }
    summary(&ended, &left_out)
}

fn items() -> Result<Vec<Item>> {
    let programs = built::build(Packages::All, &[])?;
    let missing = tiers::without_executable(&programs)?;
    let missing: Vec<&str> = missing
        .iter()
        .map(String::as_str)
        .filter(|test| !UNDER_FEATURES.iter().any(|start| test.starts_with(start)))
        .collect();
    ensure!(missing.is_empty(), "tests in no executable, so in no tier:\n{}", missing.join("\n"));
    let mut items: Vec<Item> = tiers::parts(&programs, Tier::Deep)?
        .into_iter()
        .map(|part| Item { name: part.name.clone(), work: Work::Tests(part, Vec::new()) })
        .collect();
    // Unit tests need no server.
    let older = tiers::parts(&programs, Tier::Everyday)?;
    items.extend(older.into_iter().filter(|part| part.name.contains("--test")).map(|part| Item {
        name: format!("PostgreSQL {OLDER_POSTGRES}: {}", part.name),
        work: Work::Tests(part, vec![("WALPOST_TEST_POSTGRES_VERSION", OLDER_POSTGRES.to_owned())]),
    }));
    for simulated in ["relay", "consumer"] {
        items.push(Item::cargo(
            format!("schedules: {simulated}"),
            &["xtask", "simulate", simulated, "--schedules", SCHEDULES],
        ));
    }
    for package in PUBLIC {
        for (features, option) in [
            ("no", Some("--no-default-features")),
            ("default", None),
            ("all", Some("--all-features")),
        ] {
            let mut arguments = vec!["check", "--quiet", "--package", package];
            arguments.extend(option);
            items.push(Item::cargo(format!("features: {package}, {features}"), &arguments));
        }
    }
    let oidc = ["test", "--package", "walpost-kafka", "--features", "oidc", "--test", "it", "oidc"];
    items.push(Item::cargo("features: tokens of an OAuth server", &oidc));
    let toolchain = format!("+{}", tools::MSRV);
    items.push(Item::cargo("msrv", &[&toolchain, "check", "--quiet", "--workspace"]));
    Ok(items)
}

/// `K/N`, from 1.
fn slice(text: &str) -> Result<(usize, usize)> {
    let parts = text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
    let (number, of) =
        parts.with_context(|| format!("--slice is K/N such as 1/3, not {text:?}"))?;
    ensure!((1..=of).contains(&number), "--slice {text}: the first is 1/{of}, the last {of}/{of}");
    Ok((number, of))
}

fn list(items: &[Item]) {
    for item in items {
        println!("{}: {}", item.name, counted(item.count(), "test"));
        if let Work::Tests(part, _) = &item.work {
            part.tests.iter().for_each(|test| println!("    {test}"));
        }
    }
    let tests = items.iter().map(Item::count).sum();
    println!("{}, {}", counted(items.len(), "item"), counted(tests, "test"));
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn run_one(item: Item, log: &Path) -> Result<Ended> {
    let file = || -> Result<fs::File> {
        fs::File::create(log).with_context(|| format!("cannot create {}", log.display()))
    };
    match item.work {
        Work::Tests(Part { program, marked, tests, .. }, environment) => {
            let mut file = file()?;
            let ran = harness::run(&program, marked, &tests, &environment, |line| {
                // A full disk ends the tests as well.
                drop(writeln!(file, "{line}"));
            })?;
            let failed = ran.failed().map(|outcome| outcome.path.clone()).collect();
            let (seconds, cpu_seconds) = (ran.seconds, ran.cpu_seconds);
            Ok(Ended { name: item.name, tests: tests.len(), failed, seconds, cpu_seconds })
        }
        Work::Cargo(arguments) => {
            let began = Instant::now();
            let (out, err) = (file()?, file()?);
            let mut command = cargo();
            if arguments.first().is_some_and(|first| first.starts_with('+')) {
                // Only rustup's own cargo takes a toolchain.
                command = std::process::Command::new("cargo");
                command.current_dir(tidy::root()).env_remove("RUSTUP_TOOLCHAIN");
                command.env("CARGO_TARGET_DIR", msrv_folder());
            }
            let status =
                command.args(&arguments).stdout(out).stderr(err).status().context("cargo")?;
            let failed = if status.success() { Vec::new() } else { vec![arguments.join(" ")] };
            let seconds = began.elapsed().as_secs_f64();
            Ok(Ended { name: item.name, tests: 1, failed, seconds, cpu_seconds: 0.0 })
        }
    }
}

fn msrv_folder() -> PathBuf {
    tidy::root().join("target/msrv")
}

fn summary(ended: &[Ended], left_out: &[Item]) -> Result<()> {
    let rows: Vec<Vec<String>> = ended
        .iter()
        .map(|one| {
            let cpu =
                if one.cpu_seconds > 0.0 { format!("{:.0}", one.cpu_seconds) } else { "-".into() };
            vec![
                one.name.clone(),
                one.tests.to_string(),
                one.failed.len().to_string(),
                format!("{:.0}", one.seconds),
                cpu,
            ]
        })
        .collect();
    println!("{}", table::aligned(&["item", "tests", "failed", "seconds", "CPU s"], &rows));
    for one in ended {
        one.failed.iter().for_each(|test| println!("FAILED: {}: {test}", one.name));
    }
    left_out.iter().for_each(|item| println!("LEFT OUT: {}", item.name));
    let failed: usize = ended.iter().map(|one| one.failed.len()).sum();
    let tests: usize = ended.iter().map(|one| one.tests).sum();
    println!("{} passed, {failed} failed", tests - failed);
    ensure!(failed == 0, "{failed} of {tests} deep tests failed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{built::Program, harness::Marked};

    #[test]
    fn a_slice_is_a_part_of_all() {
        assert_eq!(slice("2/3").unwrap(), (2, 3));
        for wrong in ["0/3", "4/3", "3", "a/b"] {
            assert!(slice(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_word_chooses_items_or_tests_of_them() {
        let part = Part {
            name: "a --test it".to_owned(),
            program: Program { path: "p".into(), folder: "f".into() },
            marked: Marked::Yes,
            tests: vec!["tls::x".to_owned(), "sasl::y".to_owned()],
        };
        let item = || Item { name: part.name.clone(), work: Work::Tests(part.clone(), Vec::new()) };
        assert_eq!(item().only("tls").map(|item| item.count()), Some(1));
        assert_eq!(item().only("a --test").map(|item| item.count()), Some(2));
        assert!(item().only("other").is_none());
        assert!(Item::cargo("msrv", &["check"]).only("msrv").is_some());
        assert!(Item::cargo("msrv", &["check"]).only("check").is_none());
    }
}
