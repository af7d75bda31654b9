use std::{
    hash::{BuildHasher, RandomState},
    path::{Path, PathBuf},
};

use clap::{Parser, ValueEnum};
use serde_json::json;
use walpost_tests::{
    differential::{Case, Engine, Setting, Tally, cases, differential, random_cases},
    release_binary,
};

use crate::table;

/// Debezium and Walpost with the same connectors, tables and rows: every record that
/// they publish is compared. Exit code 1 when something differs and is not
/// documented; logs are kept then.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask debezium", max_term_width = 100)]
pub(crate) struct Cli {
    /// Whom to compare with Debezium; itself, and what differs from run to run shows
    #[arg(long, value_enum, default_value = "walpost")]
    against: Against,
    /// Cases whose name or group has this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Instead: so many records of random connectors, tables and rows
    #[arg(long, value_name = "RECORDS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    random: Option<u32>,
    /// Of everything random; without it a random one, which is printed
    #[arg(long)]
    seed: Option<u64>,
    /// Cases at a time
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=32))]
    jobs: u8,
    /// Names the cases and does nothing
    #[arg(long)]
    list: bool,
    /// The last line of stdout is JSON
    #[arg(long)]
    json: bool,
    /// Keep the logs, in target/debezium, also when nothing is wrong
    #[arg(long)]
    keep: bool,
    /// The binary; without it an optimised one is built
    #[arg(long, value_name = "PATH")]
    walpost: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Against {
    Walpost,
    Debezium,
}

impl Cli {
    /// Whether everything is explained.
    pub(crate) async fn run(self) -> bool {
        let cases = self.cases();
        if self.list {
            cases.iter().for_each(|case| println!("{:<11} {}", case.group, case.name));
            return true;
        }
        assert!(!cases.is_empty(), "no case has such a name; see --list");
        let other = match self.against {
            Against::Debezium => Engine::Debezium,
            Against::Walpost => Engine::Walpost(self.program()),
        };
        let setting = Setting {
            other,
            jobs: self.jobs.into(),
            folder: folder(),
            keep: self.keep,
            progress: true,
        };
        let outcomes = Box::pin(differential(setting, cases)).await;
        table::groups(&outcomes);
        let mut all = Tally::default();
        outcomes.into_iter().for_each(|outcome| all.add(outcome.tally));
        for (difference, count) in &all.documented {
            println!("{count:>6} as in docs/from-debezium.md, {:?}", difference.section());
        }
        if self.json {
            println!(
                "{}",
                json!({
                    "compared": all.compared,
                    "equal": all.equal,
                    "documented_differences": all.documented(),
                    "unexplained": all.unexplained.len(),
                })
            );
        }
        all.unexplained.is_empty()
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = match self.random {
            None => cases(),
            Some(records) => {
                let seed = self.seed.unwrap_or_else(|| RandomState::new().hash_one("seed") >> 32);
                eprintln!("debezium: seed {seed}");
                random_cases(records as usize, seed)
            }
        };
        cases.retain(|case| {
            let group = case.group.to_string();
            let is_wanted = |text: &String| case.name.contains(text) || group == *text;
            self.only.is_empty() || self.only.iter().any(is_wanted)
        });
        cases
    }

    fn program(&self) -> PathBuf {
        let path = self.walpost.clone().unwrap_or_else(|| {
            eprintln!("debezium: building walpost");
            release_binary()
        });
        path.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

/// Beside the binaries: target/debezium.
fn folder() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().and_then(Path::parent).unwrap().join("debezium")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn cases_are_picked_by_name_or_group() {
        let picked = |args: &[&str]| Cli::parse_from([&["debezium"], args].concat()).cases().len();
        let all = picked(&[]);
        assert!(picked(&["--only", "snapshots"]) > 5);
        assert_eq!(picked(&["--only", "route: by a uuid"]), 1);
        assert!(picked(&["--only", "route: by a uuid", "--only", "snapshots"]) < all);
        assert_eq!(picked(&["--only", "no such case"]), 0);
    }
}
