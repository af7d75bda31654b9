//! The steps of a processor, one by one.

use std::time::Duration;

use walpost_inbox::{Claim, ClaimTerms, Error, State};

use crate::{
    grants::role,
    support::{World, ids},
};

async fn claim(world: &World, terms: &ClaimTerms) -> Vec<Claim> {
    let mut client = role(world, "processor", "").await;
    world.inbox.claim(&mut client, terms).await.unwrap()
}

#[tokio::test]
async fn claims_at_once_take_different_events_and_end_once() {
    let world = World::new().await;
    world.receive("apply", ids("a", 6)).await;
    let terms = ClaimTerms::new("one").limit(2);
    let (first, second) = tokio::join!(claim(&world, &terms), claim(&world, &terms));
    let mut numbers: Vec<i64> =
        first.iter().chain(&second).map(|claim| claim.head().number()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3, 4]);

    let mut client = world.database.connect().await;
    let one = &first[0];
    let tx = client.transaction().await.unwrap();
    let event = world.inbox.begin(&tx, one).await.unwrap();
    let id: String = event.json().unwrap();
    assert_eq!(id, event.head().event_id());
    tx.execute("insert into effect (event_id) values ($1)", &[&id]).await.unwrap();
    world.inbox.succeed(&tx, one).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.effects().await, [id]);

    // Whoever has it no longer begins, ends or fails nothing.
    let tx = client.transaction().await.unwrap();
    let error = world.inbox.begin(&tx, one).await.unwrap_err();
    assert!(matches!(error, Error::GivenUp { .. }), "{error:?}");
    tx.rollback().await.unwrap();
    let error = world.inbox.fail(&client, one, "late", None).await.unwrap_err();
    assert!(matches!(error, Error::GivenUp { .. }), "{error:?}");
    let tx = client.transaction().await.unwrap();
    let error = world.inbox.succeed(&tx, &first[1]).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "not begun: {error:?}");
    tx.rollback().await.unwrap();

    let zero = Some(Duration::ZERO);
    world.inbox.fail(&client, &first[1], "not today", zero).await.unwrap();
    let again = claim(&world, &ClaimTerms::new("two").limit(9)).await;
    let retried = again.iter().find(|claim| claim.head().attempt() == 2).unwrap();
    assert_eq!((retried.head().number(), retried.fence()), (first[1].head().number(), 2));
    assert_eq!(again.len(), 3);
    world.inbox.fail(&client, retried, "never", None).await.unwrap();
    assert_eq!(world.state(retried.head().event_id()).await.0, State::Failed);
    assert!(claim(&world, &ClaimTerms::new("three")).await.is_empty());
}

#[tokio::test]
async fn rows_that_somebody_holds_are_passed_over_and_not_waited_for() {
    let world = World::new().await;
    world.receive("apply", ids("a", 3)).await;
    let mut holder = world.database.connect().await;
    let tx = holder.transaction().await.unwrap();
    tx.batch_execute("select from walpost.inbox where seq <= 2 for update").await.unwrap();
    let claimed = claim(&world, &ClaimTerms::new("one").limit(9)).await;
    assert_eq!(claimed.iter().map(|one| one.head().number()).collect::<Vec<_>>(), [3]);
    tx.rollback().await.unwrap();
    assert_eq!(claim(&world, &ClaimTerms::new("one").limit(9)).await.len(), 2);
}

#[tokio::test]
async fn what_is_not_done_is_counted_with_the_age_of_the_oldest() {
    let world = World::new().await;
    let backlog = world.inbox.backlog(&world.client, None).await.unwrap();
    assert_eq!((backlog.pending, backlog.oldest_pending_seconds), (0, 0.0));
    for state in State::ALL {
        world.plant(state).await;
    }
    let given_up = world.plant(State::Failed).await;
    world
        .past_triggers(&format!(
            "update walpost.inbox set next_attempt_at = null where seq = {given_up}; \
             update walpost.inbox set received_at = now() - interval '90 s' \
             where processing_state = 'pending'"
        ))
        .await;
    let backlog = world.inbox.backlog(&world.client, None).await.unwrap();
    let counts =
        [backlog.pending, backlog.processing, backlog.waiting, backlog.given_up, backlog.review];
    assert_eq!(counts, [1; 5]);
    assert!(backlog.oldest_pending_seconds >= 90.0, "{backlog:?}");
    assert_eq!(world.inbox.backlog(&world.client, Some("bank")).await.unwrap().pending, 0);
}
