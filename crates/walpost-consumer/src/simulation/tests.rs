use std::{
    env,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Instant,
};

use super::{
    Bug,
    schedule::{history, run},
};

/// Of an everyday run; `cargo xtask deep` runs 100,000.
const SCHEDULES: u64 = 2_000;
/// Within which each planted mistake has to be noticed.
const NOTICED_WITHIN: u64 = 5_000;
const THREADS: u64 = 2;

/// With `WALPOST_TEST_SCHEDULES` as many as it says, from `WALPOST_TEST_SEED` on.
#[test]
fn no_schedule_loses_or_repeats_an_effect_or_a_replay() {
    let schedules = variable("WALPOST_TEST_SCHEDULES").unwrap_or(SCHEDULES);
    let first = variable("WALPOST_TEST_SEED").unwrap_or(0);
    let began = Instant::now();
    let (done, is_wrong) = (AtomicU64::new(0), AtomicBool::new(false));
    let part = |thread: u64| {
        for index in (thread..schedules).step_by(THREADS as usize) {
            if is_wrong.load(Ordering::Relaxed) {
                return None;
            }
            let seed = first.wrapping_add(index);
            if let Some(wrong) = run(seed, None) {
                is_wrong.store(true, Ordering::Relaxed);
                return Some((seed, wrong));
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
        None
    };
    let failure = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || part(thread))).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).next()
    });
    let done = done.into_inner();
    let per_second = done as f64 / began.elapsed().as_secs_f64();
    eprintln!("{done} schedules from seed {first} on, {per_second:.0} per second");
    if let Some((seed, wrong)) = failure {
        panic!("{}", report(seed, None, &wrong));
    }
}

#[test]
fn an_offset_in_kafka_before_its_effects_is_noticed() {
    let wrong = noticed(Bug::KafkaFirst);
    assert!(wrong.contains("is known, and counts as newer"), "{wrong}");
}

#[test]
fn an_offset_that_is_stored_before_its_effects_is_noticed() {
    let wrong = noticed(Bug::OffsetFirst);
    assert!(wrong.contains("passed without an effect"), "{wrong}");
}

#[test]
fn a_batch_without_compare_and_set_is_noticed() {
    let wrong = noticed(Bug::NoCompareAndSet);
    assert!(wrong.contains("but effects end before"), "{wrong}");
}

#[test]
fn a_replay_that_ignores_its_run_is_noticed() {
    let wrong = noticed(Bug::RunIgnored);
    assert!(wrong.contains("was to take effect again and did not"), "{wrong}");
}

#[test]
fn numbers_that_kafka_may_hold_and_that_are_not_stored_are_noticed() {
    let wrong = noticed(Bug::KnownForgotten);
    assert!(wrong.contains("is known, and counts as newer"), "{wrong}");
}

#[test]
fn a_reset_by_sql_that_forgets_what_kafka_may_hold_is_noticed() {
    let wrong = noticed(Bug::KnownDropped);
    assert!(wrong.contains("is known, and counts as newer"), "{wrong}");
}

#[test]
fn a_group_that_is_asked_before_the_claim_is_noticed() {
    noticed(Bug::AskedBeforeClaim);
}

#[test]
fn a_fill_that_goes_on_behind_its_end_is_noticed() {
    noticed(Bug::FillUncut);
}

#[test]
fn a_commit_that_an_older_database_does_not_know_is_no_wish() {
    noticed(Bug::GroupLeads);
}

#[test]
fn a_reset_that_an_older_database_does_not_know_is_not_carried_out() {
    noticed(Bug::EveryResetPending);
}

#[test]
fn a_seed_gives_the_same_schedule_each_time() {
    for seed in 0..200 {
        let bug = Some(Bug::NoCompareAndSet);
        assert_eq!(run(seed, bug), run(seed, bug), "seed {seed}");
    }
}

/// What is wrong at the first seed at which a mistake is noticed.
#[track_caller]
fn noticed(bug: Bug) -> String {
    let began = Instant::now();
    for seed in 0..NOTICED_WITHIN {
        if let Some(wrong) = run(seed, Some(bug)) {
            let took = began.elapsed();
            assert_eq!(run(seed, None), None, "seed {seed} fails without {bug:?}");
            eprintln!("{bug:?} noticed after {took:?}: {}", report(seed, Some(bug), &wrong));
            return wrong;
        }
    }
    panic!("{bug:?} is not noticed within {NOTICED_WITHIN} schedules");
}

/// What fails, and what happened before.
fn report(seed: u64, bug: Option<Bug>, wrong: &str) -> String {
    let again = "run it again with WALPOST_TEST_SCHEDULES=1 WALPOST_TEST_SEED=";
    let happened = history(seed, bug);
    format!("seed {seed}: {wrong}; {again}{seed}\n{happened}")
}

fn variable(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not `{text}`")))
}
