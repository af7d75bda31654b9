//! A server is killed at each of its failpoints, and the request is sent again.

use crate::{
    member::{Answer, Member, PROVIDER},
    support::{LIMIT, World},
};

/// Sends a request to a server that dies at the failpoint, and again to another
/// one until it is not in flight; `shift` is how much time passes in between.
async fn killed(path: &str, failpoint: &str, shift: Option<&str>) -> (World, Answer) {
    let world = World::new().await;
    world.client.batch_execute(PROVIDER).await.unwrap();
    let dying = Member::start(&world, Some(failpoint)).await;
    assert_eq!(dying.post(path, "k").await, None, "{}", dying.process.log());
    dying.process.killed(LIMIT);
    let heir = Member::start(&world, None).await;
    if let Some(interval) = shift {
        let early = heir.post(path, "k").await.unwrap();
        assert_eq!(early.status, 409, "its lease lasts: {early:?}");
        world.shift(interval).await;
    }
    let answer = walpost_testkit::until_some(LIMIT, "an answer", async || {
        // The server needs a moment to see that the session of the dead one is gone.
        heir.post(path, "k").await.filter(|answer| answer.status != 409)
    })
    .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let again = heir.post(path, "k").await.unwrap();
    assert!(again.is_replay() && again.body == answer.body, "{again:?}");
    (world, answer)
}

async fn order(failpoint: &str) -> Answer {
    let (world, answer) = killed("/orders", failpoint, None).await;
    assert_eq!(world.effects().await, ["order"]);
    answer
}

/// And how often the provider was called.
async fn checkout(failpoint: &str, shift: Option<&str>) -> (Answer, i64) {
    let (world, answer) = killed("/checkout", failpoint, shift).await;
    assert_eq!(world.effects().await, ["checkout"]);
    assert_eq!(world.number("select count(*) from charge").await, 1, "charged once");
    (answer, world.number("select sum(calls) from charge").await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_claim_and_handler_leaves_nothing() {
    assert!(!order("after_claim:kill").await.is_replay());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_handler_and_commit_leaves_nothing() {
    assert!(!order("before_commit:kill").await.is_replay());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_commit_and_answer_leaves_all_of_it() {
    assert!(order("after_commit:kill").await.is_replay());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_lease_and_handler_is_run_once_its_lease_has_ended() {
    let (answer, calls) = checkout("after_lease:kill", Some("1 hour")).await;
    assert_eq!((answer.is_replay(), calls), (false, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_behind_a_recovery_point_is_resumed_there() {
    let (answer, calls) = checkout("after_phase:kill", Some("1 hour")).await;
    assert_eq!((answer.is_replay(), calls), (false, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_handler_and_the_end_of_its_lease_is_resumed() {
    let (answer, calls) = checkout("before_finish:kill", Some("1 hour")).await;
    assert_eq!((answer.is_replay(), calls), (false, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_the_end_of_a_lease_and_the_answer_is_replayed() {
    let (answer, calls) = checkout("after_finish:kill", None).await;
    assert_eq!((answer.is_replay(), calls), (true, 1));
}
