use walpost_inbox::{Error, Insert, NewEvent, Prune, Pruned, State};

use crate::{grants::role, support::World};

/// Every row as if it had been done so many days ago.
async fn age(world: &World, days: u32) {
    let sql =
        format!("update walpost.inbox set processed_at = processed_at - interval '{days} days'");
    world.past_triggers(&sql).await;
}

fn pruned(payloads: u64, rows: u64) -> impl Fn(Pruned) -> bool {
    move |pruned| (pruned.payloads, pruned.rows) == (payloads, rows)
}

#[tokio::test]
async fn payloads_leave_first_then_rows_and_nothing_that_is_not_done() {
    let world = World::new().await;
    for state in State::ALL {
        for _ in 0..3 {
            world.plant(state).await;
        }
    }
    let pruner = role(&world, "pruner", "").await;
    let prune = Prune::new(30, 90).batch_rows(2);
    age(&world, 29).await;
    assert!(pruned(0, 0)(world.inbox.prune(&pruner, &prune).await.unwrap()));
    age(&world, 2).await;
    assert!(pruned(6, 0)(world.inbox.prunable(&pruner, &prune).await.unwrap()));
    assert!(pruned(6, 0)(world.inbox.prune(&pruner, &prune).await.unwrap()));
    assert!(pruned(0, 0)(world.inbox.prune(&pruner, &prune).await.unwrap()));
    let left = "select count(*) from walpost.inbox where payload is not null";
    assert_eq!(world.number(left).await, 12);
    age(&world, 60).await;
    assert!(pruned(0, 6)(world.inbox.prunable(&pruner, &prune).await.unwrap()));
    assert!(pruned(0, 6)(world.inbox.prune(&pruner, &prune).await.unwrap()));
    assert_eq!(world.number("select count(*) from walpost.inbox").await, 12);
    let states =
        world.texts("select distinct processing_state from walpost.inbox order by 1", &[]).await;
    assert_eq!(states, ["failed", "pending", "processing", "review"]);
    assert_eq!(world.number(left).await, 12);
}

#[tokio::test]
async fn pruning_reopens_no_event_within_the_window() {
    let world = World::new().await;
    let event = NewEvent::new("evt_1", "paid", *b"one");
    let Insert::Inserted(number) = world.insert(&event).await else { panic!("it is new") };
    assert_eq!(world.inbox.ignore(&world.client, &[number]).await.unwrap().done, [number]);
    age(&world, 89).await;
    for days in [0, 1, 89] {
        let error = world.inbox.prune(&world.client, &Prune::new(0, days)).await.unwrap_err();
        let Error::Window { keep_days, window_days: 90, .. } = error else { panic!("{error:?}") };
        assert_eq!(keep_days, days);
    }
    let prune = Prune::new(0, 90);
    assert!(pruned(1, 0)(world.inbox.prune(&world.client, &prune).await.unwrap()));
    // Without its payload it is known, and so is another content.
    for (payload, is_same) in [("one", true), ("two", false)] {
        let again = world.insert(&NewEvent::new("evt_1", "paid", payload)).await;
        let Insert::Duplicate(found) = again else { panic!("{again:?}") };
        assert_eq!((found.state, found.is_same), (State::Ignored, is_same));
    }
    // The window is the owner's to say.
    let shorten = "update walpost.inbox_window set dedup_window = '36 hours'";
    world.client.batch_execute(shorten).await.unwrap();
    let error = world.inbox.prune(&world.client, &Prune::new(0, 1)).await.unwrap_err();
    assert!(error.to_string().contains("have to be remembered for 2"), "{error}");
    let gone = world.inbox.prune(&world.client, &Prune::new(0, 2)).await.unwrap();
    assert_eq!(gone.rows, 1);
    for bad in ["'0'", "'-1 day'", "'23 hours'", "null"] {
        let sql = format!("update walpost.inbox_window set dedup_window = {bad}");
        assert!(world.client.batch_execute(&sql).await.is_err(), "{bad}");
    }
    world.client.batch_execute("delete from walpost.inbox_window").await.unwrap();
    let error = world.inbox.prune(&world.client, &Prune::new(0, 90)).await.unwrap_err();
    assert!(matches!(error, Error::Window { .. }), "{error:?}");
}
