use std::{
    hash::{BuildHasher, RandomState},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde_json::{Value, json};
use walpost_testkit::Seeded;
use walpost_tests::{
    chaos::{
        Fault, Mode, Outcome, Setting, Subject, outage, rounds, schedule, stalled, takeovers,
        zombies,
    },
    release_binary,
};

use crate::{consumer::ConsumerArgs, table, webhook::WebhookArgs};

const TAKEOVER_MAX: Duration = Duration::from_secs(5);
const RSS_MAX_KB: u64 = 64 * 1024;
const ROUNDS: usize = 300;
const FEW_ROUNDS: usize = 30;

/// Relay, consumer and webhooks under faults: real servers, steady load, one oracle. Exit
/// code 1 on any violation; logs and evidence are kept then.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask chaos", max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Kills, broker kills, stops of PostgreSQL, cut and half-open connections
    Relay(RelayArgs),
    /// Three consumers: kills, stopped ones that wake, rebalances, broker kills,
    /// stops of PostgreSQL; a tenth of the records twice
    Consumer(ConsumerArgs),
    /// A sender of webhooks and a receiver: kills of either, answers that are lost,
    /// stops of either database
    Webhook(WebhookArgs),
    /// Events commit while there is no broker: memory, and what comes of them
    Outage(OutageArgs),
    /// The active one of two relays is killed: how long nothing is published
    Takeover(TakeoverArgs),
}

#[derive(Args, Debug)]
struct Common {
    /// Of everything random; without it a random one, which is printed
    #[arg(long)]
    seed: Option<u64>,
    /// The last line of stdout is JSON
    #[arg(long)]
    json: bool,
    /// Keep the logs, in target/chaos, also when nothing is wrong
    #[arg(long)]
    keep: bool,
    /// The binary; without it an optimised one is built
    #[arg(long, value_name = "PATH")]
    walpost: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct RelayArgs {
    /// Rounds, one fault in each; of all modes together [default: 300, or of each mode
    /// 30 with --zombies or --frozen-replica]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: Option<u32>,
    /// How the relay publishes; "both" halves the rounds
    #[arg(long, value_enum, default_value = "both")]
    mode: Modes,
    /// Kills of the relay alone
    #[arg(long)]
    only_kills: bool,
    /// Whom to kill; "debezium" is a Kafka Connect worker with offsets kept each
    /// second, and is killed in every round
    #[arg(long, value_enum, default_value = "walpost", conflicts_with = "zombies")]
    subject: Who,
    /// Instead: in each round a relay is paused past its take-over and woken beside
    /// its successor
    #[arg(long)]
    zombies: bool,
    /// Instead: three brokers, and in each round one is frozen while the relay is
    /// killed and started again
    #[arg(long, conflicts_with_all = ["zombies", "subject", "only_kills"])]
    frozen_replica: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Args, Debug)]
struct OutageArgs {
    /// Events committed meanwhile
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    events: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Args, Debug)]
struct TakeoverArgs {
    /// Kills
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Modes {
    Idempotent,
    Transactional,
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Who {
    Walpost,
    Debezium,
}

impl Modes {
    fn all(self) -> Vec<Mode> {
        match self {
            Self::Idempotent => vec![Mode::Idempotent],
            Self::Transactional => vec![Mode::Transactional],
            Self::Both => vec![Mode::Idempotent, Mode::Transactional],
        }
    }
}

/// What does not depend on the command.
struct Basis {
    seed: u64,
    subject: Subject,
    json: bool,
    keep: bool,
}

impl Common {
    /// Builds the binary if none is named.
    fn prepare(self, command: &str, who: Who) -> Basis {
        let seed = self.seed.unwrap_or_else(|| RandomState::new().hash_one(command) >> 32);
        eprintln!("chaos: {command}, seed {seed}");
        let named = self.walpost;
        let program = || {
            let path = named.unwrap_or_else(|| {
                eprintln!("chaos: building walpost");
                release_binary()
            });
            path.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let subject = match who {
            Who::Walpost => Subject::Walpost(program()),
            Who::Debezium => Subject::Debezium,
        };
        Basis { seed, subject, json: self.json, keep: self.keep }
    }
}

impl Basis {
    fn setting(&self, command: &str, mode: Mode) -> Setting {
        let name = format!("{command}-{mode}-{}", self.seed);
        Setting {
            subject: self.subject.clone(),
            mode,
            seed: self.seed,
            folder: folder().join(name),
            settings: Vec::new(),
            keep: self.keep,
            progress: true,
        }
    }

    fn print(&self, mut value: Value) {
        value["seed"] = json!(self.seed);
        if self.json {
            println!("{value}");
        }
    }
}

/// Beside the binaries: target/chaos.
pub(crate) fn folder() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().and_then(Path::parent).unwrap().join("chaos")
}

impl Cli {
    /// What breaks the promise.
    pub(crate) async fn run(self) -> Vec<String> {
        match self.command {
            Command::Relay(args) if args.zombies || args.frozen_replica => run_few(args).await,
            Command::Relay(args) => run_rounds(args).await,
            Command::Consumer(args) => args.run().await,
            Command::Webhook(args) => args.run().await,
            Command::Outage(args) => run_outage(args).await,
            Command::Takeover(args) => run_takeover(args).await,
        }
    }
}

async fn run_rounds(args: RelayArgs) -> Vec<String> {
    // A peer has no modes.
    let modes = match args.subject {
        Who::Walpost => args.mode.all(),
        Who::Debezium => Modes::Idempotent.all(),
    };
    let all = args.rounds.map_or(ROUNDS, |rounds| rounds as usize).max(modes.len());
    let basis = args.common.prepare("relay", args.subject);
    let mut dealt = schedule(all, modes.len(), &mut Seeded::new(basis.seed));
    if args.only_kills || args.subject == Who::Debezium {
        dealt.iter_mut().for_each(|faults| faults.fill(Fault::Kill));
    }
    let mut outcomes = Vec::new();
    for (mode, faults) in modes.into_iter().zip(dealt) {
        outcomes.push(Box::pin(rounds(basis.setting("relay", mode), &faults)).await);
    }
    conclude(&basis, &outcomes)
}

async fn run_few(args: RelayArgs) -> Vec<String> {
    let of_each = args.rounds.map_or(FEW_ROUNDS, |rounds| rounds as usize);
    let command = if args.zombies { "zombies" } else { "frozen-replica" };
    let basis = args.common.prepare(command, Who::Walpost);
    let mut outcomes = Vec::new();
    for mode in args.mode.all() {
        let setting = basis.setting(command, mode);
        outcomes.push(match args.zombies {
            true => Box::pin(zombies(setting, of_each)).await,
            false => Box::pin(stalled(setting, of_each)).await,
        });
    }
    conclude(&basis, &outcomes)
}

fn conclude(basis: &Basis, outcomes: &[Outcome]) -> Vec<String> {
    table::outcomes(outcomes);
    basis.print(Outcome::json_of_all(outcomes));
    outcomes.iter().flat_map(Outcome::violations).collect()
}

async fn run_outage(args: OutageArgs) -> Vec<String> {
    let basis = args.common.prepare("outage", Who::Walpost);
    let setting = basis.setting("outage", Mode::Idempotent);
    let (outcome, [peak_away_kb, peak_rss_kb]) = Box::pin(outage(setting, args.events)).await;
    table::outcomes(std::slice::from_ref(&outcome));
    let mb = |kb: u64| kb.div_ceil(1024);
    println!("most memory resident: {} MB, until then {} MB", mb(peak_rss_kb), mb(peak_away_kb));
    let mut value = outcome.json();
    value["events"] = json!(args.events);
    value["peak_rss_away_kb"] = json!(peak_away_kb);
    value["peak_rss_kb"] = json!(peak_rss_kb);
    basis.print(value);
    let mut violations = outcome.violations();
    if peak_rss_kb > RSS_MAX_KB {
        violations.push(format!("{peak_rss_kb} kB resident, more than {RSS_MAX_KB} kB"));
    }
    violations
}

async fn run_takeover(args: TakeoverArgs) -> Vec<String> {
    let basis = args.common.prepare("takeover", Who::Walpost);
    let setting = basis.setting("takeover", Mode::Idempotent);
    let (outcome, waits) = Box::pin(takeovers(setting, args.rounds as usize)).await;
    table::outcomes(std::slice::from_ref(&outcome));
    table::spread("longest wait of an event across each kill", &waits);
    let mut value = outcome.json();
    value["gap_ms"] = outcome.recovery.json();
    value["longest_wait_ms"] = waits.json();
    basis.print(value);
    let mut violations = outcome.violations();
    if outcome.recovery.p99 > TAKEOVER_MAX {
        let (p99, most) = (outcome.recovery.p99, TAKEOVER_MAX);
        violations.push(format!("99 % of the gaps are within {p99:?}, more than {most:?}"));
    }
    violations
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
    fn both_modes_are_run_unless_one_is_named() {
        let Command::Relay(args) = Cli::parse_from(["chaos", "relay"]).command else {
            panic!("the relay was asked for");
        };
        assert_eq!(args.mode.all(), [Mode::Idempotent, Mode::Transactional]);
        assert_eq!(Modes::Transactional.all(), [Mode::Transactional]);
    }
}
