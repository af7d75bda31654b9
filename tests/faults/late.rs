//! Requests of a dead relay, and answers that do not come: what a successor that
//! reads the topic cannot see yet.

use walpost_tests::chaos::{Mode, held, stalled};

use crate::chaos::setting;

const ROUNDS: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "deep: chaos with brokers of its own"]
async fn late_requests_of_a_dead_idempotent_relay_are_copies_of_what_was_held_in_order() {
    let held = Box::pin(held(setting("held", Mode::Idempotent))).await;
    let report = &held.outcome.report;
    assert_eq!(held.outcome.violations(), [""; 0], "{held:?}");
    assert_eq!(report.published_twice, held.landed, "each is a copy: {held:?}");
    assert!((1..=held.missing).contains(&held.landed), "of what was held: {held:?}");
    assert_eq!(held.copies_out_of_order, 0, "{held:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "deep: chaos with brokers of its own"]
async fn late_requests_of_a_dead_transactional_relay_are_refused() {
    let held = Box::pin(held(setting("held", Mode::Transactional))).await;
    assert_eq!(held.outcome.violations(), [""; 0], "{held:?}");
    assert!(held.bytes > 0 && held.missing > 0, "something was held: {held:?}");
    assert_eq!(held.landed, 0, "{held:?}");
    held.outcome.report.assert_exactly_once();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "deep: chaos with brokers of its own"]
async fn a_kill_while_a_replica_is_frozen_repeats_nothing() {
    let outcome = Box::pin(stalled(setting("stalled", Mode::Idempotent), ROUNDS)).await;
    assert_eq!(outcome.violations(), [""; 0], "{}", outcome.report);
    outcome.report.assert_exactly_once();
}
