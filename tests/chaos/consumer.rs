use std::{
    fmt::Write as _,
    hash::{BuildHasher, RandomState},
};

use clap::{Args, ValueEnum};
use serde_json::Value;
use walpost_testkit::Seeded;
use walpost_tests::{
    chaos::{ConsumerOutcome, ConsumerSetting, Membership, blows, consumers},
    test_consumer_binary,
};

use crate::command::folder;

#[derive(Args, Debug)]
pub(crate) struct ConsumerArgs {
    /// Rounds, one fault in each
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// How the consumers are members of their group; "all" divides the rounds
    #[arg(long, value_enum, default_value = "all")]
    group: Group,
    /// Of everything random; without it a random one, which is printed
    #[arg(long)]
    seed: Option<u64>,
    /// The last line of stdout is JSON
    #[arg(long)]
    json: bool,
    /// Keep the logs, in target/chaos, also when nothing is wrong
    #[arg(long)]
    keep: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Group {
    /// All of the others, one after the other
    All,
    /// Cooperative rebalances, the default of the crate
    Cooperative,
    /// Eager rebalances
    Eager,
    /// With `group.instance.id`
    Static,
    /// The group protocol of KIP-848
    Consumer,
}

impl Group {
    fn memberships(self) -> Vec<Membership> {
        match self {
            Self::All => Membership::ALL.into(),
            Self::Cooperative => vec![Membership::Cooperative],
            Self::Eager => vec![Membership::Eager],
            Self::Static => vec![Membership::Static],
            Self::Consumer => vec![Membership::NewProtocol],
        }
    }
}

impl ConsumerArgs {
    /// What breaks the promise.
    pub(crate) async fn run(self) -> Vec<String> {
        let seed = self.seed.unwrap_or_else(|| RandomState::new().hash_one("consumer") >> 32);
        eprintln!("chaos: consumer, seed {seed}");
        let setting = ConsumerSetting {
            program: test_consumer_binary(),
            memberships: self.group.memberships(),
            seed,
            folder: folder().join(format!("consumer-{seed}")),
            sabotage: None,
            keep: self.keep,
            progress: true,
        };
        let blows = blows(self.rounds as usize, &mut Seeded::new(seed));
        let outcome = Box::pin(consumers(setting, &blows)).await;
        let mut figures = outcome.figures();
        figures.push(("seed", seed.into()));
        print(&outcome, &figures);
        if self.json {
            println!("{}", line(&figures));
        }
        outcome.violations()
    }
}

fn print(outcome: &ConsumerOutcome, figures: &[(&str, Value)]) {
    for (name, value) in figures {
        println!("{:<28}{value:>16}", name.replace('_', " "));
    }
    for example in outcome.examples() {
        println!("  {example}");
    }
}

/// One object, in the order of the figures.
pub(crate) fn line<N: std::fmt::Display>(figures: &[(N, Value)]) -> String {
    let mut text = String::from("{");
    for (index, (name, value)) in figures.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(text, "{comma}\"{name}\":{value}").expect("a string takes all");
    }
    text + "}"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_line_is_one_object_in_the_given_order() {
        let figures = [("lost", json!(0)), ("events", json!(7))];
        assert_eq!(line(&figures), r#"{"lost":0,"events":7}"#);
    }

    #[test]
    fn all_memberships_are_run_unless_one_is_named() {
        assert_eq!(Group::All.memberships().len(), 4);
        assert_eq!(Group::Consumer.memberships(), [Membership::NewProtocol]);
    }
}
