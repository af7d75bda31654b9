//! What `cargo xtask chaos consumer` runs at full size, in small: so the harness
//! stays true, and is seen to notice what it is for.

use std::path::Path;

use walpost_testkit::Seeded;
use walpost_tests::chaos::{
    Blow, ConsumerOutcome, ConsumerSetting, Membership, Pause, Sabotage, blows, consumers,
};

use crate::CONSUMER;

const ROUNDS: usize = 12;
const RUNS_WITHOUT_FENCE: u64 = 12;

fn setting(name: &str, memberships: &[Membership]) -> ConsumerSetting {
    let seed = std::env::var("WALPOST_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(u64::from(std::process::id()));
    println!("WALPOST_TEST_SEED={seed}");
    ConsumerSetting {
        program: CONSUMER.into(),
        memberships: memberships.to_vec(),
        seed,
        folder: Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("consumers-{name}")),
        sabotage: None,
        keep: false,
        progress: false,
    }
}

fn holds(outcome: &ConsumerOutcome) {
    assert_eq!(outcome.violations(), [""; 0], "{outcome:#?}");
    assert!(outcome.zombie_commits_refused() > 0, "{outcome:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "deep: chaos with a broker and three consumers of its own"]
async fn a_few_rounds_of_chaos_lose_and_repeat_no_effect() {
    let setting = setting("all", &Membership::ALL);
    let blows = blows(ROUNDS, &mut Seeded::new(setting.seed));
    holds(&Box::pin(consumers(setting, &blows)).await);
}

/// Without the compare-and-set whoever wakes moves the offset back, and its
/// successors meet records a second time: the harness has to see them. A zombie
/// that hears of the rebalance before it comes to its next batch does no harm,
/// so there are several runs, until one has done some.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "deep: chaos with a broker and three consumers of its own"]
async fn the_harness_notices_a_fence_without_its_compare_and_set() {
    let mut seen = Vec::new();
    for run in 0..RUNS_WITHOUT_FENCE {
        let mut setting = setting(&format!("unfenced-{run}"), &[Membership::Cooperative]);
        setting.seed += run;
        setting.sabotage = Some(Sabotage::NoFence);
        let blows = [Blow::Zombie(Pause::AfterCommit); 4];
        let violations = Box::pin(consumers(setting, &blows)).await.violations();
        if violations.iter().any(|line| line.contains("offered twice")) {
            return;
        }
        seen.push(violations);
    }
    panic!("no record was offered twice: {seen:?}");
}
