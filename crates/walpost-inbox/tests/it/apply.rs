//! Events that are inserted and applied in one transaction.

use tokio_postgres::Transaction;
use walpost_inbox::{
    Applied, ApplyError, ClaimTerms, Duplicate, Error, HandlerError, Insert, NewEvent, State,
};
use walpost_testkit::until;

use crate::support::{ByType, LIMIT, World, run};

fn event(id: &str, event_type: &str) -> NewEvent {
    NewEvent::new(id, event_type, format!("\"{id}\""))
}

fn terms() -> ClaimTerms {
    ClaimTerms::new("inline").lease_ms(60_000)
}

async fn apply(
    world: &World,
    tx: &Transaction<'_>,
    event: &NewEvent,
) -> Result<Applied, ApplyError> {
    world.inbox.insert_and_apply(tx, event, &ByType, &terms()).await
}

/// In a transaction of its own, which ends as it should.
async fn received(world: &World, event: &NewEvent) -> Result<Applied, ApplyError> {
    let mut client = world.database.connect().await;
    let tx = client.transaction().await.unwrap();
    let applied = apply(world, &tx, event).await;
    match applied {
        Ok(_) => tx.commit().await.unwrap(),
        Err(_) => tx.rollback().await.unwrap(),
    }
    applied
}

#[tokio::test]
#[ignore = "deep: an older PostgreSQL"]
async fn effect_and_state_commit_together_once() {
    for major in [14, 18] {
        let world = World::of(major).await;
        let Ok(Applied::Succeeded(number)) = received(&world, &event("a", "apply")).await else {
            panic!("it is new");
        };
        assert_eq!(world.state("a").await, (State::Succeeded, None));
        let claimed = "select count(*) from walpost.inbox where attempts = 1 and fence = 1 \
                       and claimed_by = 'inline' and lease_until is null \
                       and processed_at is not null";
        assert_eq!(world.number(claimed).await, 1);
        for (again, is_same) in [(event("a", "apply"), true), (event("a", "other"), false)] {
            let Ok(Applied::Duplicate(Duplicate { number: found, state, is_same: same, .. })) =
                received(&world, &again).await
            else {
                panic!("it is there");
            };
            assert_eq!((found, state, same), (number, State::Succeeded, is_same));
        }
        assert_eq!(world.effects().await, ["a"]);
    }
}

#[tokio::test]
async fn what_fails_leaves_nothing() {
    let world = World::new().await;
    for kind in ["retry", "unique", "raise", "json", "give_up", "conflict"] {
        let error = received(&world, &event("a", kind)).await.unwrap_err();
        let ApplyError::Handler(error) = error else { panic!("{kind}: {error}") };
        let what = (error.is_conflict(), error.is_transient(), error.is_final());
        let expected = match kind {
            "conflict" => (true, true, false),
            "json" | "give_up" => (false, false, true),
            _ => (false, false, false),
        };
        assert_eq!(what, expected, "{kind}");
        assert_eq!(world.number("select count(*) from walpost.inbox").await, 0, "{kind}");
    }
    // A handler that says nothing of a failed statement, and one that commits.
    for kind in ["swallow", "commit"] {
        let error = received(&world, &event(kind, kind)).await.unwrap_err();
        assert!(matches!(error, ApplyError::Inbox(Error::Refused { .. })), "{kind}: {error:?}");
    }
    let transient = HandlerError::transient("closed");
    assert!(transient.is_transient() && !transient.is_conflict() && !transient.is_final());
    assert_eq!(world.effects().await, ["commit"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_handler_does_not_know_waits_for_a_processor() {
    let world = World::new().await;
    let unknown = received(&world, &event("a", "unknown")).await.unwrap();
    assert!(matches!(unknown, Applied::Unknown(_)), "{unknown:?}");
    assert_eq!(world.state("a").await.0, State::Pending);
    let running = run(world.processor(), ByType);
    world.until(State::Review, 1).await;
    running.stop().await;
}

#[tokio::test]
async fn what_was_given_up_is_there_without_its_effect() {
    let world = World::new().await;
    let mut client = world.database.connect().await;
    let why = HandlerError::give_up("no such invoice");
    for is_new in [true, false] {
        let tx = client.transaction().await.unwrap();
        let new = event("a", "give_up");
        let insert = world.inbox.insert_given_up(&tx, &new, &why, &terms()).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(matches!(insert, Insert::Inserted(_)), is_new, "{insert:?}");
        assert_eq!(world.state("a").await, (State::Failed, Some("no such invoice".to_owned())));
    }
    let given_up = "select count(*) from walpost.inbox where next_attempt_at is null";
    assert_eq!(world.number(given_up).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_twin_waits_and_is_the_first_only_behind_a_rollback() {
    for commits in [true, false] {
        let world = World::new().await;
        let mut client = world.database.connect().await;
        let tx = client.transaction().await.unwrap();
        let first = apply(&world, &tx, &event("a", "apply")).await.unwrap();
        assert!(matches!(first, Applied::Succeeded(_)), "{first:?}");
        let waiting = "select count(*) from pg_stat_activity \
                       where datname = current_database() and wait_event_type = 'Lock'";
        let end = async {
            until(LIMIT, "a twin", async || world.number(waiting).await == 1).await;
            if commits { tx.commit().await } else { tx.rollback().await }
        };
        let new = event("a", "apply");
        let (twin, ended) = tokio::join!(received(&world, &new), end);
        ended.unwrap();
        let is_copy = matches!(twin, Ok(Applied::Duplicate(_)));
        assert_eq!(is_copy, commits, "{twin:?}");
        assert_eq!(world.effects().await, ["a"]);
    }
}

#[tokio::test]
async fn nobody_claims_it_meanwhile() {
    let world = World::new().await;
    let mut client = world.database.connect().await;
    let tx = client.transaction().await.unwrap();
    let first = apply(&world, &tx, &event("a", "apply")).await.unwrap();
    let mut other = world.database.connect().await;
    let claims = world.inbox.claim(&mut other, &ClaimTerms::new("other")).await.unwrap();
    assert!(claims.is_empty() && matches!(first, Applied::Succeeded(_)));
    tx.commit().await.unwrap();
    let claims = world.inbox.claim(&mut other, &ClaimTerms::new("other")).await.unwrap();
    assert!(claims.is_empty());
    assert_eq!(world.effects().await, ["a"]);
}
