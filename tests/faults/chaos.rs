//! What `cargo xtask chaos` runs at full size, in small: so the harness stays
//! true, and is seen to notice what it is for.

use std::path::Path;

use walpost_testkit::Seeded;
use walpost_tests::{
    SETTLES,
    chaos::{Fault, Mode, Outcome, Setting, Subject, rounds, schedule},
    walpost_binary,
};

const ROUNDS: usize = 8;

pub(crate) fn setting(name: &str, mode: Mode) -> Setting {
    let seed = std::env::var("WALPOST_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(u64::from(std::process::id()));
    println!("WALPOST_TEST_SEED={seed}");
    Setting {
        subject: Subject::Walpost(walpost_binary()),
        mode,
        seed,
        folder: Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{mode}")),
        settings: vec![(SETTLES.0.to_owned(), SETTLES.1.to_owned())],
        keep: false,
        progress: false,
    }
}

/// One of every kind of fault, dealt to both modes.
async fn a_few_rounds(mode: Mode) -> Outcome {
    let setting = setting("chaos", mode);
    let mut dealt = schedule(ROUNDS, 2, &mut Seeded::new(setting.seed));
    let faults = dealt.swap_remove(usize::from(mode == Mode::Transactional));
    Box::pin(rounds(setting, &faults)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_kills_under_load_break_no_promise_of_the_idempotent_mode() {
    let setting = setting("kills", Mode::Idempotent);
    let outcome = Box::pin(rounds(setting, &[Fault::Kill, Fault::EarlyKill])).await;
    assert_eq!(outcome.violations(), [""; 0], "{}", outcome.report);
    outcome.report.assert_exactly_once();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "deep: one round of every fault"]
async fn a_few_rounds_of_chaos_break_no_promise_of_the_idempotent_mode() {
    let outcome = a_few_rounds(Mode::Idempotent).await;
    assert_eq!(outcome.violations(), [""; 0], "{}", outcome.report);
    outcome.report.assert_exactly_once();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "deep: one round of every fault"]
async fn a_few_rounds_of_chaos_break_no_promise_of_the_transactional_mode() {
    let outcome = a_few_rounds(Mode::Transactional).await;
    assert_eq!(outcome.violations(), [""; 0], "{}", outcome.report);
    outcome.report.assert_exactly_once();
}

/// Without either header nothing tells our records from others, as the promise
/// says: so a kill makes copies, and the harness has to see them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "deep: one round of every fault"]
async fn the_harness_of_chaos_notices_copies() {
    let mut setting = setting("copies", Mode::Idempotent);
    let off = |name: &str| (format!("WALPOST_PIPELINE_{name}_HEADER"), "false".to_owned());
    setting.settings = vec![off("POSITION"), off("SOURCE")];
    let outcome = Box::pin(rounds(setting, &[Fault::Kill; 2])).await;
    let violations = outcome.violations();
    assert!(violations.iter().any(|line| line.contains("published twice")), "{violations:?}");
    assert_eq!((outcome.report.lost, outcome.report.reordered), (0, 0), "{}", outcome.report);
}
