//! `cargo xtask test`: the everyday tests, and with `--durations` what takes how long.

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use walpost_local::{Kafka, Postgres};

use crate::{
    options::Options,
    suite::{
        built::{self, Packages},
        cargo, harness, table,
        tiers::{self, Tier},
    },
    tidy,
};

const SLOWEST_TESTS: usize = 100;
const SLOWEST_UNITS: usize = 25;

/// Runs the tests that `cargo test` runs. `--durations` prints the time of each
/// executable, of the slowest tests, and of the start of each server; `--from-scratch`
/// also builds the tests and the optimised binary in an empty folder and prints the
/// time of each crate.
///
/// # Errors
/// If an option is wrong, something does not build, or a test failed.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let flags = ["--durations", "--from-scratch"];
    let options = Options::parse(arguments, &["--only"], &flags)?;
    if options.has("--from-scratch") {
        build_from_scratch()?;
    }
    let programs = built::build(Packages::Everyday, &[])?;
    let mut parts = tiers::parts(&programs, Tier::Everyday)?;
    if let Some(word) = options.value("--only") {
        parts = tiers::only(parts, word);
    }
    ensure!(!parts.is_empty(), "no test matches");
    if options.has("--durations") {
        start_servers()?;
    }
    let (mut executables, mut slowest, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    let mut passed = 0;
    for part in &parts {
        let ran = harness::run(&part.program, part.marked, &part.tests, &[], |line| {
            if !line.ends_with('>') || line.contains("FAILED") {
                eprintln!("{line}");
            }
        })?;
        for outcome in &ran.outcomes {
            let name = format!("{} {}", part.name, outcome.path);
            if outcome.passed {
                passed += 1;
            } else {
                failed.push(name.clone());
            }
            slowest.push((outcome.seconds, name));
        }
        eprintln!("{}: {} tests in {:.1} s", part.name, part.tests.len(), ran.seconds);
        executables.push((ran.seconds, ran.cpu_seconds, part));
    }
    if options.has("--durations") {
        executables.sort_by(|one, other| other.0.total_cmp(&one.0));
        slowest.sort_by(|one, other| other.0.total_cmp(&one.0));
        let rows: Vec<_> = executables
            .iter()
            .map(|(seconds, cpu, part)| {
                let tests = part.tests.len().to_string();
                vec![part.name.clone(), tests, format!("{seconds:.1}"), format!("{cpu:.1}")]
            })
            .collect();
        println!("{}", table::aligned(&["executable", "tests", "seconds", "CPU s"], &rows));
        let total: f64 = executables.iter().map(|(seconds, ..)| seconds).sum();
        println!("all executables: {total:.0} s\n");
        print_durations("slowest tests", &slowest, SLOWEST_TESTS);
    }
    failed.iter().for_each(|name| println!("FAILED: {name}"));
    println!("{passed} passed, {} failed", failed.len());
    ensure!(failed.is_empty(), "{} tests failed", failed.len());
    Ok(())
}

/// Rows that are sorted already.
fn print_durations(what: &str, durations: &[(f64, String)], most: usize) {
    let shown = durations.iter().take(most);
    let rows: Vec<_> = shown.map(|(s, name)| vec![name.clone(), format!("{s:.1}")]).collect();
    println!("{}", table::aligned(&[what, "seconds"], &rows));
}

fn start_servers() -> Result<()> {
    let began = Instant::now();
    let postgres = Postgres::builder().throwaway().start()?;
    let postgres_took = began.elapsed().as_secs_f64();
    drop(postgres);
    let began = Instant::now();
    let kafka = Kafka::builder().start()?;
    let kafka_took = began.elapsed().as_secs_f64();
    drop(kafka);
    let took = [(postgres_took, "PostgreSQL".to_owned()), (kafka_took, "Kafka".to_owned())];
    print_durations("start of a server", &took, took.len());
    Ok(())
}

/// In a folder of its own, which is removed.
fn build_from_scratch() -> Result<()> {
    let folder = tidy::root().join("target/durations");
    let builds: [(&str, &[&str]); 2] = [
        ("the optimised binary", &["build", "--release", "--package", "walpost"]),
        ("the everyday tests", &["test", "--no-run"]),
    ];
    for (what, arguments) in builds {
        if folder.exists() {
            fs::remove_dir_all(&folder).context("cannot remove an earlier build")?;
        }
        let began = Instant::now();
        let status = cargo()
            .args(arguments)
            .arg("--timings")
            .env("CARGO_TARGET_DIR", &folder)
            .env("CARGO_INCREMENTAL", env::var("CARGO_INCREMENTAL").unwrap_or("0".to_owned()))
            .status()
            .context("cannot run cargo")?;
        ensure!(status.success(), "{what} did not build");
        let took = began.elapsed().as_secs_f64();
        println!("building {what} from scratch: {took:.0} s");
        print_durations("crate", &units(&page(&folder))?, SLOWEST_UNITS);
    }
    fs::remove_dir_all(&folder).context("cannot remove the build")
}

fn page(target: &Path) -> PathBuf {
    target.join("cargo-timings/cargo-timing.html")
}

/// Compiling and linking of each target, the longest first, out of the page that
/// `cargo --timings` writes.
fn units(page: &Path) -> Result<Vec<(f64, String)>> {
    let text =
        fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    units_of(&text).context("the page of cargo --timings has no list of units")
}

fn units_of(page: &str) -> Option<Vec<(f64, String)>> {
    let (_, rest) = page.split_once("const UNIT_DATA = ")?;
    let (list, _) = rest.split_once(";\n")?;
    let list: Value = serde_json::from_str(list).ok()?;
    let mut units: Vec<(f64, String)> = list
        .as_array()?
        .iter()
        .filter_map(|unit| {
            let words = ["name", "target"].map(|key| unit[key].as_str().unwrap_or_default().trim());
            Some((unit["duration"].as_f64()?, words.join(" ").trim().to_owned()))
        })
        .collect();
    units.sort_by(|one, other| other.0.total_cmp(&one.0));
    Some(units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_read_from_the_page_of_cargo() {
        let page = "x\nconst UNIT_DATA = [{\"name\": \"a\", \"target\": \"\", \"duration\": 1.5},\n\
                    {\"name\": \"b\", \"target\": \" it \\\"test\\\"\", \"duration\": 2}];\ny";
        let expected = [(2.0, "b it \"test\"".to_owned()), (1.5, "a".to_owned())];
        assert_eq!(units_of(page).unwrap(), expected);
        assert_eq!(units_of("nothing"), None);
    }
}
