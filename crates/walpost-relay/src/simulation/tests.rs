use std::{
    env,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Instant,
};

use super::{Bug, run::run, schedule::Schedule, shrink::shrink};

/// Of an everyday run; `cargo xtask deep` runs 100,000.
const SCHEDULES: u64 = 2_000;
/// Within which each planted mistake has to be noticed.
const NOTICED_WITHIN: u64 = 5_000;
const THREADS: u64 = 2;

/// With `WALPOST_TEST_SCHEDULES` as many as it says, from `WALPOST_TEST_SEED` on.
#[test]
fn no_schedule_loses_repeats_or_reorders_an_event() {
    let schedules = variable("WALPOST_TEST_SCHEDULES").unwrap_or(SCHEDULES);
    let first = variable("WALPOST_TEST_SEED").unwrap_or(0);
    let began = Instant::now();
    let (done, is_wrong) = (AtomicU64::new(0), AtomicBool::new(false));
    let part = |thread: u64| {
        for index in (thread..schedules).step_by(THREADS as usize) {
            if is_wrong.load(Ordering::Relaxed) {
                return None;
            }
            let schedule = Schedule::of(first.wrapping_add(index));
            if let Some(wrong) = run(&schedule, None) {
                is_wrong.store(true, Ordering::Relaxed);
                return Some((schedule, wrong));
            }
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done.is_multiple_of(schedules.div_ceil(10)) {
                eprintln!("{done} of {schedules} schedules after {:?}", began.elapsed());
            }
        }
        None
    };
    let failures: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || part(thread))).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    });
    let done = done.into_inner();
    let per_second = done as f64 / began.elapsed().as_secs_f64();
    eprintln!("{done} schedules from seed {first} on, {per_second:.0} per second");
    if let Some((schedule, wrong)) = failures.into_iter().next() {
        panic!("{}", report(schedule, None, wrong));
    }
}

#[test]
fn an_event_that_counts_once_it_is_queued_is_noticed() {
    let wrong = noticed(Bug::AckWhenQueued);
    assert!(wrong.contains("neither in the log nor parked"), "{wrong}");
}

#[test]
fn an_acknowledgement_past_a_batch_that_failed_is_noticed() {
    let wrong = noticed(Bug::AckPastFailedBatch);
    assert!(wrong.contains("neither in the log nor parked"), "{wrong}");
}

#[test]
fn a_session_that_begins_within_a_transaction_is_noticed() {
    let wrong = noticed(Bug::ResumeInsideTransaction);
    assert!(wrong.contains("neither in the log nor parked"), "{wrong}");
}

#[test]
fn a_snapshot_that_misses_what_has_come_is_noticed() {
    let wrong = noticed(Bug::AnySnapshot);
    assert!(wrong.contains("stands below the floors"), "{wrong}");
}

#[test]
fn a_snapshot_that_is_proven_too_early_is_noticed() {
    let wrong = noticed(Bug::ProvenAtOnce);
    assert!(wrong.contains("is proven, and neither in the log nor parked"), "{wrong}");
}

#[test]
fn a_recovery_that_looks_from_the_last_floors_on_is_noticed() {
    let wrong = noticed(Bug::FloorsOfNow);
    assert!(wrong.contains("is twice in the log"), "{wrong}");
}

#[test]
fn a_predecessor_that_is_not_fenced_off_is_noticed() {
    let wrong = noticed(Bug::NoFence);
    assert!(wrong.contains("is twice in the log"), "{wrong}");
}

#[test]
fn an_unknown_end_that_counts_as_an_abort_is_noticed() {
    let wrong = noticed(Bug::ResendUnknown);
    assert!(wrong.contains("is twice in the log"), "{wrong}");
}

#[test]
fn a_record_that_counts_before_the_commit_is_noticed() {
    let wrong = noticed(Bug::AckBeforeCommit);
    assert!(wrong.contains("neither in the log nor parked"), "{wrong}");
}

#[test]
fn rows_that_leave_before_they_are_proven_are_noticed() {
    let wrong = noticed(Bug::PruneUnproven);
    assert!(wrong.contains("has left, and is neither in the log nor parked"), "{wrong}");
}

#[test]
fn rows_that_leave_once_one_of_two_has_proven_them_are_noticed() {
    let wrong = noticed(Bug::PruneByOne);
    assert!(wrong.contains("has left, and is neither in the log nor parked"), "{wrong}");
}

#[test]
fn a_boundary_that_is_crossed_before_it_is_visible_is_noticed() {
    let wrong = noticed(Bug::CrossUnseen);
    assert!(wrong.contains("landed behind"), "{wrong}");
}

#[test]
fn rows_from_before_a_move_that_count_as_if_behind_it_are_noticed() {
    let wrong = noticed(Bug::FilterOfNow);
    let known = ["neither in the log nor parked", "is none of pipeline"];
    assert!(known.iter().any(|known| wrong.contains(known)), "{wrong}");
}

#[test]
fn an_event_that_is_refused_apart_and_passed_is_noticed() {
    let wrong = noticed(Bug::PassRefused);
    assert!(wrong.contains("neither in the log nor parked"), "{wrong}");
}

#[test]
fn an_event_that_goes_past_one_that_was_refused_before_it_is_noticed() {
    let wrong = noticed(Bug::PassBehind);
    assert!(wrong.contains("parked"), "{wrong}");
}

#[test]
fn a_topic_that_is_given_up_because_one_broker_denies_it_is_noticed() {
    let wrong = noticed(Bug::BelieveDenial);
    assert!(wrong.contains("is twice in the log"), "{wrong}");
}

#[test]
fn a_seed_gives_the_same_schedule_and_the_same_end_each_time() {
    for seed in 0..200 {
        let schedule = Schedule::of(seed);
        assert_eq!(schedule.to_string(), Schedule::of(seed).to_string());
        let bug = Some(Bug::AckWhenQueued);
        assert_eq!(run(&schedule, bug), run(&schedule, bug), "seed {seed}");
    }
}

/// The first seed at which a mistake is noticed, and what is wrong there.
#[track_caller]
fn noticed(bug: Bug) -> String {
    let began = Instant::now();
    for seed in 0..NOTICED_WITHIN {
        let schedule = Schedule::of(seed);
        if let Some(wrong) = run(&schedule, Some(bug)) {
            let took = began.elapsed();
            assert_eq!(run(&schedule, None), None, "seed {seed} fails without {bug:?}");
            eprintln!("{bug:?} noticed after {took:?}");
            eprintln!("{}", report(schedule, Some(bug), wrong.clone()));
            return wrong;
        }
    }
    panic!("{bug:?} is not noticed within {NOTICED_WITHIN} schedules");
}

/// What fails, and the least that does.
fn report(schedule: Schedule, bug: Option<Bug>, wrong: String) -> String {
    let seed = schedule.seed;
    let (least, wrong_then) = shrink(schedule, bug, wrong.clone());
    let again = "run it again with WALPOST_TEST_SCHEDULES=1 WALPOST_TEST_SEED=";
    format!("seed {seed}: {wrong}; {again}{seed}\nthe least that fails, {wrong_then}:\n{least}")
}

fn variable(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not `{text}`")))
}
