//! What has arrived leaves in time, nothing else does, and no event is delivered
//! once more because its row has moved.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::task::JoinSet;
use tokio_postgres::Client;
use walpost_testkit::until;
use walpost_webhook::{DeliveryFilter, DeliveryState, NewDelivery, Prune, Pruned, StoreError};

use crate::{
    grants::as_role,
    operating::plant,
    receiver::{Receiver, answer},
    world::{LIMIT, World, delivery, ids, keys, run, settings},
};

/// As time would: an event's delivery arrived so long ago.
async fn arrived(world: &World, event_id: &str, ago: &str) {
    plant(world, event_id, DeliveryState::Delivered).await;
    let sql = format!(
        "update walpost.webhook_delivery set finished_at = now() - interval '{ago}', \
         created_at = now() - interval '{ago}' where event_id = '{event_id}'"
    );
    world.past_triggers(&sql).await;
}

async fn prune(world: &World, prune: Prune) -> (u64, u64) {
    let expected = world.deliveries.prunable(&world.client, &prune).await.unwrap();
    let pruned = world.deliveries.prune(&world.client, &prune, |_| {}).await.unwrap();
    assert_eq!(pruned, expected, "what was counted before");
    (pruned.archived, pruned.deleted)
}

async fn events(world: &World, table: &str) -> Vec<String> {
    world.texts(&format!("select event_id from walpost.{table} order by event_id")).await
}

/// How many rows an inserter finds to be new.
async fn insert(world: &World, client: &Client, event_id: &str) -> Result<u64, StoreError> {
    world.deliveries.insert(client, &[delivery(event_id)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_shifted_clock_what_arrived_moves_at_30_days_and_leaves_at_a_year() {
    let world = World::new().await;
    let ages = [
        ("a29", "30 days -1 minute"),
        ("b30", "30 days 1 minute"),
        ("c364", "365 days -1 minute"),
        ("d365", "365 days 1 minute"),
    ];
    world.insert(&ages.map(|(event_id, _)| event_id.to_owned())).await;
    for (event_id, ago) in ages {
        arrived(&world, event_id, ago).await;
    }
    assert_eq!(prune(&world, Prune::default()).await, (3, 1));
    assert_eq!(events(&world, "webhook_delivery").await, ["a29"]);
    assert_eq!(events(&world, "webhook_archive").await, ["b30", "c364"]);
    assert_eq!(prune(&world, Prune::default()).await, (0, 0));
    let days = "update walpost.webhook_archive set finished_at = finished_at - interval '2 minutes'; \
                update walpost.webhook_delivery set finished_at = finished_at - interval '2 minutes'";
    world.past_triggers(days).await;
    assert_eq!(prune(&world, Prune::default()).await, (1, 1));
    assert_eq!(events(&world, "webhook_archive").await, ["a29", "b30"]);
    assert_eq!(world.number("select count(*) from walpost.webhook_attempt").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_archive_says_what_became_of_a_delivery_and_not_what_was_sent() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    world.insert(&ids("a", 1)).await;
    let running = run(&world, settings(&receiver.url("127.0.0.1")));
    world.until("delivered", 1).await;
    running.stop().await;
    let filter = DeliveryFilter::new(9).event_id("a000");
    let before = world.deliveries.list(&world.client, &filter).await.unwrap().pop().unwrap();
    let attempts = world.deliveries.attempts(&world.client, &before).await.unwrap();
    assert_eq!(prune(&world, Prune::new(0, 365)).await, (1, 0));
    let after = world.deliveries.list(&world.client, &filter).await.unwrap().pop().unwrap();
    assert!(after.archived_at.is_some());
    let mut as_before = after.clone();
    as_before.archived_at = None;
    assert_eq!(as_before, before);
    assert_eq!(world.deliveries.show(&world.client, before.id).await.unwrap(), Some(after.clone()));
    assert_eq!(world.deliveries.attempts(&world.client, &after).await.unwrap(), attempts);
    assert_eq!(attempts.len(), 1);
    let kept = world.texts("select a::text from walpost.webhook_archive a").await;
    assert!(!kept[0].contains("{\"id\""), "{kept:?}");
    let contents = world.deliveries.contents(&world.client, before.id, 99).await.unwrap();
    assert_eq!(contents.body, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_not_arrived_never_leaves() {
    let world = World::new().await;
    let open = DeliveryState::OPEN;
    world.insert(&open.map(|state| state.as_str().to_owned())).await;
    for state in open {
        plant(&world, state.as_str(), state).await;
    }
    let aged = "update walpost.webhook_delivery set created_at = now() - interval '9 years', \
                finished_at = finished_at - interval '9 years'";
    world.past_triggers(aged).await;
    let all = "select md5(string_agg(d::text, ' ' order by id)) from walpost.webhook_delivery d";
    let before = world.texts(all).await;
    assert_eq!(prune(&world, Prune::new(0, 1)).await, (0, 0));
    assert_eq!(world.texts(all).await, before);
    let early = world.deliveries.prune(&world.client, &Prune::new(30, 29), |_| {}).await;
    let early = early.unwrap_err();
    assert!(early.to_string().contains("delete_after_days"), "{early}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_in_the_archive_is_not_delivered_once_more() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    world.insert(&ids("a", 2)).await;
    let running = run(&world, settings(&receiver.url("127.0.0.1")));
    world.until("delivered", 2).await;
    assert_eq!(prune(&world, Prune::new(0, 365)).await, (2, 0));
    let writer = as_role(&world, "writer").await;
    let elsewhere = NewDelivery { destination: "billing".to_owned(), ..delivery("a000") };
    let again = [delivery("a000"), elsewhere, delivery("b"), delivery("a001")];
    assert_eq!(writer.deliveries.insert(&writer.client, &again).await.unwrap(), 2);
    let plain = "insert into walpost.webhook_delivery \
                 (destination, event_id, idempotency_key, body) \
                 values ('logistics', 'a000', 'k', 'b')";
    assert_eq!(writer.client.execute(plain, &[]).await.unwrap(), 0);
    world.until("delivered", 1).await;
    running.stop().await;
    let mut sent = keys(&receiver);
    sent.sort();
    assert_eq!(sent, ["a000", "a001", "b"], "each once");
    // For as long as the archive has it.
    let year = "update walpost.webhook_archive set finished_at = now() - interval '366 days'";
    world.past_triggers(year).await;
    assert_eq!(prune(&world, Prune::default()).await, (0, 2));
    assert_eq!(insert(&world, &writer.client, "a000").await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_creates_a_delivery_while_it_moves_is_told_to_try_again() {
    for isolation in ["read committed", "repeatable read", "serializable"] {
        let world = World::new().await;
        world.insert(&ids("a", 1)).await;
        arrived(&world, "a000", "31 days").await;
        let mover = world.database.connect().await;
        mover.batch_execute("begin").await.unwrap();
        let moved = world.deliveries.prune(&mover, &Prune::default(), |_| {}).await.unwrap();
        assert_eq!(moved.archived, 1);
        // Finds it in neither table, and waits for who deletes it.
        let inserter = world.database.connect().await;
        let isolated = format!("set default_transaction_isolation = '{isolation}'");
        inserter.batch_execute(&isolated).await.unwrap();
        let deliveries = world.deliveries.clone();
        let inserting =
            tokio::spawn(async move { deliveries.insert(&inserter, &[delivery("a000")]).await });
        let waiting = "select count(*) from pg_stat_activity where datname = current_database() \
                       and wait_event_type = 'Lock'";
        until(LIMIT, "a waiting inserter", async || world.number(waiting).await == 1).await;
        mover.batch_execute("commit").await.unwrap();
        let error = inserting.await.unwrap().unwrap_err();
        assert!(error.is_transient(), "{isolation}: {error}");
        assert_eq!(insert(&world, &world.client, "a000").await.unwrap(), 0, "{isolation}");
        assert_eq!(world.number("select count(*) from walpost.webhook_delivery").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_snapshot_creates_no_second_delivery_either() {
    let world = World::new().await;
    world.insert(&ids("a", 2)).await;
    arrived(&world, "a000", "31 days").await;
    let mut inserter = world.database.connect().await;
    let tx = inserter
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
        .start()
        .await
        .unwrap();
    tx.query_one("select count(*) from walpost.webhook_delivery", &[]).await.unwrap();
    assert_eq!(prune(&world, Prune::default()).await, (1, 0));
    let error = world.deliveries.insert(&tx, &[delivery("b"), delivery("a000")]).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    tx.rollback().await.unwrap();
    let again = world.deliveries.insert(&inserter, &[delivery("b"), delivery("a000")]).await;
    assert_eq!(again.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_come_again_and_again_while_they_move_are_not_new() {
    let world = World::new().await;
    let all = ids("a", 300);
    world.insert(&all).await;
    world
        .past_triggers(
            "update walpost.webhook_delivery set state = 'delivered', next_attempt_at = null, \
             finished_at = now() - interval '31 days', fence = 1",
        )
        .await;
    let moved = Arc::new(AtomicBool::new(false));
    let mut inserters = JoinSet::new();
    for isolation in ["read committed", "read committed", "repeatable read"] {
        let client = world.database.connect().await;
        let isolated = format!("set default_transaction_isolation = '{isolation}'");
        client.batch_execute(&isolated).await.unwrap();
        let (deliveries, all, moved) = (world.deliveries.clone(), all.clone(), Arc::clone(&moved));
        inserters.spawn(async move {
            let (mut new, mut met) = (0, 0);
            while !moved.load(Ordering::SeqCst) {
                for some in all.chunks(3) {
                    let some: Vec<NewDelivery> = some.iter().map(|id| delivery(id)).collect();
                    match deliveries.insert(&client, &some).await {
                        Ok(count) => new += count,
                        Err(error) if error.is_transient() => met += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            (new, met)
        });
    }
    let batches = Prune::default().batch_rows(2);
    let pruned = world.deliveries.prune(&world.client, &batches, |_| {}).await.unwrap();
    moved.store(true, Ordering::SeqCst);
    assert_eq!(pruned.archived, 300);
    let ended = inserters.join_all().await;
    assert!(ended.iter().all(|(new, _)| *new == 0), "{ended:?}");
    assert_eq!(world.number("select count(*) from walpost.webhook_delivery").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_are_bounded_and_pass_over_what_is_locked() {
    let world = World::new().await;
    world.insert(&ids("a", 25)).await;
    world
        .past_triggers(
            "update walpost.webhook_delivery set state = 'delivered', next_attempt_at = null, \
             finished_at = now() - interval '31 days', fence = 1",
        )
        .await;
    let mut other = world.database.connect().await;
    let tx = other.transaction().await.unwrap();
    tx.batch_execute("select from walpost.webhook_delivery where event_id = 'a003' for update")
        .await
        .unwrap();
    let mut told = Vec::new();
    let batches = Prune::default().batch_rows(10);
    let progress = |so_far: Pruned| told.push((so_far.archived, so_far.deleted));
    let pruned = world.deliveries.prune(&world.client, &batches, progress).await.unwrap();
    assert_eq!((pruned.archived, pruned.deleted), (24, 0));
    assert_eq!(told, [(10, 0), (20, 0), (24, 0), (24, 0)]);
    tx.rollback().await.unwrap();
    let pruner = as_role(&world, "pruner").await;
    assert_eq!(prune(&pruner, Prune::default()).await, (1, 0));
    assert_eq!(prune(&pruner, Prune::new(0, 30)).await, (0, 25));
    assert_eq!(events(&world, "webhook_archive").await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_who_prune_at_once_move_each_delivery_once() {
    let world = World::new().await;
    world.insert(&ids("a", 400)).await;
    world
        .past_triggers(
            "update walpost.webhook_delivery set state = 'delivered', next_attempt_at = null, \
             finished_at = now() - interval '31 days', fence = 1",
        )
        .await;
    let other = world.database.connect().await;
    let batches = Prune::default().batch_rows(7);
    let (one, two) = tokio::join!(
        world.deliveries.prune(&world.client, &batches, |_| {}),
        world.deliveries.prune(&other, &batches, |_| {}),
    );
    assert_eq!(one.unwrap().archived + two.unwrap().archived, 400);
    assert_eq!(world.number("select count(*) from walpost.webhook_archive").await, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_ids_of_two_tables_are_two_deliveries_and_the_archive_knows_which() {
    let world = World::new().await;
    let of = |source: &str| NewDelivery { source: source.to_owned(), ..delivery("7") };
    let insert =
        async |new: &[NewDelivery]| world.deliveries.insert(&world.client, new).await.unwrap();
    assert_eq!(insert(&[of("ord"), of("ord")]).await, 1);
    arrived(&world, "7", "30 days 1 minute").await;
    assert_eq!(prune(&world, Prune::default()).await, (1, 0));
    assert_eq!(insert(&[of("ord"), of("bill"), of("")]).await, 2, "one is in the archive");
    assert_eq!(insert(&[of("bill"), of("")]).await, 0);
    let sources = "select source from walpost.webhook_delivery where event_id = '7' order by 1";
    assert_eq!(world.texts(sources).await, ["", "bill"]);
}
