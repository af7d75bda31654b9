use std::hash::{BuildHasher, RandomState};

use clap::Args;
use walpost_testkit::Seeded;
use walpost_tests::{
    chaos::{WebhookSetting, webhook_blows, webhooks},
    release_binary, test_receiver_binary,
};

use crate::{command::folder, consumer::line};

#[derive(Args, Debug)]
pub(crate) struct WebhookArgs {
    /// Rounds, one fault in each
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
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

impl WebhookArgs {
    /// What breaks the promise.
    pub(crate) async fn run(self) -> Vec<String> {
        let seed = self.seed.unwrap_or_else(|| RandomState::new().hash_one("webhook") >> 32);
        eprintln!("chaos: webhook, seed {seed}");
        let setting = WebhookSetting {
            walpost: release_binary(),
            receiver: test_receiver_binary(),
            seed,
            folder: folder().join(format!("webhook-{seed}")),
            keep: self.keep,
            progress: true,
        };
        let blows = webhook_blows(self.rounds as usize, &mut Seeded::new(seed));
        let outcome = Box::pin(webhooks(setting, &blows)).await;
        let mut figures = outcome.figures();
        figures.push(("seed".to_owned(), seed.into()));
        for (name, value) in &figures {
            println!("{:<52}{value:>12}", name.replace('_', " "));
        }
        for example in outcome.examples() {
            println!("  {example}");
        }
        if self.json {
            println!("{}", line(&figures));
        }
        outcome.violations()
    }
}
