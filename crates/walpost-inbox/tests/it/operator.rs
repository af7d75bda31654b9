use walpost_inbox::{Error, Filter, NewEvent, OnUnknown, State};

use crate::{
    grants::role,
    support::{ByType, World, ids, run},
};

#[tokio::test(flavor = "multi_thread")]
async fn what_failed_is_listed_shown_and_tried_again_with_all_its_attempts() {
    let world = World::new().await;
    let event = NewEvent::new("r", "retry", *b"xyz").source("bank").related_reference("invoice 7");
    let number = world.insert(&event).await.number();
    world.receive("apply", ids("a", 2)).await;
    let running = run(world.processor(), ByType);
    world.until(State::Failed, 1).await;
    world.until(State::Succeeded, 2).await;

    // An operator is no reader of payloads.
    let operator = role(&world, "operator", "").await;
    let failed = Filter::new(10).states([State::Failed, State::Review]);
    let listed = world.inbox.list(&operator, &failed).await.unwrap();
    assert_eq!(listed.iter().map(|entry| entry.number).collect::<Vec<_>>(), [number]);
    let entry = world.inbox.show(&operator, number).await.unwrap().unwrap();
    assert_eq!(entry, listed[0]);
    assert_eq!((&*entry.source, &*entry.event_id, &*entry.event_type), ("bank", "r", "retry"));
    assert_eq!(entry.reason.as_deref(), Some("not today"));
    assert_eq!(entry.related_reference.as_deref(), Some("invoice 7"));
    assert_eq!((entry.attempts, entry.claims, entry.payload_bytes), (3, 3, 3));
    assert!(entry.next_attempt_at.is_none() && entry.has_payload);
    let denied = world.inbox.payload(&operator, number, 10).await.unwrap_err();
    assert!(matches!(denied, Error::Denied { .. }), "{denied:?}");
    let payload = world.inbox.payload(&world.client, number, 2).await.unwrap();
    assert_eq!(payload.as_deref(), Some(&b"xy"[..]));
    assert_eq!(world.inbox.show(&operator, 99).await.unwrap(), None);
    for (filter, count) in [
        (Filter::new(10), 3),
        (Filter::new(2), 2),
        (Filter::new(10).source("bank"), 1),
        (Filter::new(10).event_type("apply"), 2),
        (Filter::new(10).event_id("a001"), 1),
        (Filter::new(10).event_id("a001").source("bank"), 0),
    ] {
        assert_eq!(world.inbox.list(&operator, &filter).await.unwrap().len(), count, "{filter:?}");
    }

    let changed = world.inbox.retry(&operator, &[number, 2, 99, 99]).await.unwrap();
    assert_eq!(changed.done, [number]);
    assert_eq!(changed.left, [(2, Some(State::Succeeded)), (99, None)]);
    world.until(State::Failed, 1).await;
    let again = world.inbox.show(&operator, number).await.unwrap().unwrap();
    assert_eq!((again.attempts, again.claims), (3, 6));
    // That is no way to be rid of it.
    let changed = world.inbox.ignore(&operator, &[number]).await.unwrap();
    assert_eq!((changed.done.len(), changed.left), (0, vec![(number, Some(State::Failed))]));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_under_review_is_processed_after_all_or_ignored_for_good() {
    let world = World::new().await;
    world.receive("unknown", ids("u", 2)).await;
    let running = run(world.processor(), ByType);
    world.until(State::Review, 2).await;
    running.stop().await;
    world.receive("apply", ["p".to_owned()]).await;
    assert_eq!(world.inbox.ignore(&world.client, &[2, 3]).await.unwrap().done, [2, 3]);
    assert_eq!(world.inbox.retry(&world.client, &[1, 2, 3]).await.unwrap().done, [1]);
    assert_eq!(world.state("u000").await, (State::Pending, None));
    for id in ["u001", "p"] {
        assert_eq!(world.state(id).await, (State::Ignored, Some("operator".to_owned())));
    }
    // Now its type is known, as far as that goes.
    let running = run(world.processor().on_unknown(OnUnknown::Ignore), ByType);
    world.until(State::Ignored, 3).await;
    running.stop().await;
    assert_eq!(world.effects().await, [""; 0]);
}

#[tokio::test]
async fn a_reader_decides_nothing() {
    let world = World::new().await;
    let number = world.plant(State::Review).await;
    let reader = role(&world, "reader", "").await;
    assert_eq!(world.inbox.list(&reader, &Filter::new(10)).await.unwrap().len(), 1);
    assert!(world.inbox.backlog(&reader, None).await.unwrap().review == 1);
    for denied in [
        world.inbox.retry(&reader, &[number]).await.unwrap_err(),
        world.inbox.ignore(&reader, &[number]).await.unwrap_err(),
    ] {
        assert!(matches!(denied, Error::Denied { kind: "operator", .. }), "{denied:?}");
        assert!(denied.to_string().contains("inbox_grant('operator'"), "{denied}");
    }
}
