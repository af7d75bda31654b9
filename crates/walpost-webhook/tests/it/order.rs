//! Deliveries that go one after the other, and what they do not wait for.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::Semaphore;
use walpost_testkit::{postgres_of, until};
use walpost_webhook::{
    DeliveryFilter, DeliveryState, NewDelivery, OnHeadFailure, Order, ProcessorSettings,
    RetryPolicy, Schedule, Settlement,
};

use crate::{
    receiver::{Receiver, answer},
    waiting::{alone, entries_read},
    world::{LIMIT, NAME, World, delivery, ids, keys, patient, run, settings},
};

/// Behind a head that is not done.
const MANY: i64 = 100_000;

/// Of an order key, which the event's id begins with up to the colon.
pub(crate) fn of_key(id: &str) -> NewDelivery {
    let key = id.split(':').next().unwrap();
    NewDelivery { order_key: Some(key.to_owned()), ..delivery(id) }
}

/// `keys` keys with as many deliveries each, in turn: `k0:000`, `k1:000`, …
pub(crate) fn of_keys(keys: usize, each: usize) -> Vec<NewDelivery> {
    let id = |number: usize| format!("k{}:{:03}", number % keys, number / keys);
    (0..keys * each).map(|number| of_key(&id(number))).collect()
}

pub(crate) fn in_order(order: Order, url: &str) -> ProcessorSettings {
    ProcessorSettings { order, ..settings(url) }
}

/// First arrivals of each key are in order; how many there are.
pub(crate) fn assert_ordered(arrived: &[String]) -> usize {
    let mut last: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for one in arrived {
        let (key, number) = one.split_once(':').unwrap();
        let of_key = last.entry(key).or_default();
        if !of_key.contains(&number) {
            of_key.push(number);
        }
    }
    assert!(last.values().all(|numbers| numbers.is_sorted()), "{arrived:?}");
    last.values().map(Vec::len).sum()
}

async fn insert(world: &World, new: &[NewDelivery]) {
    assert_eq!(world.deliveries.insert(&world.client, new).await.unwrap(), new.len() as u64);
}

async fn id_of(world: &World, event: &str) -> i64 {
    let sql = format!("select id from walpost.webhook_delivery where event_id = '{event}'");
    world.number(&sql).await
}

/// What the list says that an event's delivery waits for.
async fn blocked_by(world: &World, event: &str) -> Option<i64> {
    let filter = DeliveryFilter::new(10).event_id(event);
    let listed = world.deliveries.list(&world.client, &filter).await.unwrap();
    assert_eq!(listed.len(), 1);
    let shown = world.deliveries.show(&world.client, listed[0].id).await.unwrap().unwrap();
    assert_eq!(shown.id, listed[0].id);
    shown.blocked_by
}

async fn blocked(world: &World) -> u64 {
    world.deliveries.destination(&world.client, NAME).await.unwrap().unwrap().blocked
}

/// Fails what comes for the first key.
async fn refusing_k0(is_well: &Arc<AtomicBool>) -> Receiver {
    let is_well = Arc::clone(is_well);
    Receiver::judging(move |request| {
        let is_refused = request.contains(": k0:") && !is_well.load(Ordering::SeqCst);
        answer(if is_refused { "500 Oops" } else { "200 OK" }, "", "")
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn several_processors_keep_the_order_of_each_key() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let url = receiver.url("127.0.0.1");
    let running: Vec<_> = (0..3).map(|_| run(&world, in_order(Order::Key, &url))).collect();
    for some in of_keys(10, 30).chunks(50) {
        insert(&world, some).await;
    }
    world.until("delivered", 300).await;
    for each in running {
        each.stop().await;
    }
    assert_eq!(receiver.requests().len(), 300);
    assert_eq!(assert_ordered(&keys(&receiver)), 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_failed_blocks_its_key_alone_until_it_is_retried() {
    let world = World::new().await;
    let is_well = Arc::<AtomicBool>::default();
    let receiver = refusing_k0(&is_well).await;
    let mut new = of_keys(3, 4);
    new.push(delivery("none:000"));
    insert(&world, &new).await;
    let running = run(&world, in_order(Order::Key, &receiver.url("127.0.0.1")));
    world.until("delivered", 9).await;
    world.until("failed", 1).await;
    let head = id_of(&world, "k0:000").await;
    for behind in ["k0:001", "k0:002", "k0:003"] {
        assert_eq!(blocked_by(&world, behind).await, Some(head), "{behind}");
    }
    assert_eq!(blocked_by(&world, "k0:000").await, None);
    until(LIMIT, "what is blocked", async || blocked(&world).await == 3).await;
    let waiting = world.deliveries.backlog(&world.client).await.unwrap();
    assert_eq!((waiting[0].pending, waiting[0].failed, waiting[0].order), (3, 1, Order::Key));
    is_well.store(true, Ordering::SeqCst);
    world.deliveries.retry(&world.client, &[head]).await.unwrap();
    world.until("delivered", 13).await;
    running.stop().await;
    assert_eq!(assert_ordered(&keys(&receiver)[..]), 13);
    assert_eq!(blocked(&world).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_waits_for_its_retry_blocks_and_one_that_is_settled_does_not() {
    let world = World::new().await;
    let is_well = Arc::<AtomicBool>::default();
    let receiver = refusing_k0(&is_well).await;
    insert(&world, &of_keys(2, 3)).await;
    let mut slow = in_order(Order::Key, &receiver.url("127.0.0.1"));
    slow.policy = RetryPolicy::new(Schedule::fixed(Duration::from_secs(3_600), 1));
    let running = run(&world, slow);
    world.until("delivered", 3).await;
    until(LIMIT, "what is blocked", async || blocked(&world).await == 2).await;
    world.polled().await;
    assert_eq!(world.row("k0:001").await, ("pending".to_owned(), 0, None));
    // Its time comes, and its schedule ends.
    let due = "update walpost.webhook_delivery set next_attempt_at = now() where attempts = 1 \
               and state = 'pending'";
    world.client.batch_execute(due).await.unwrap();
    world.until("failed", 1).await;
    let head = id_of(&world, "k0:000").await;
    assert_eq!(blocked_by(&world, "k0:001").await, Some(head));
    is_well.store(true, Ordering::SeqCst);
    let settled = world.deliveries.settle(&world.client, &[head], Settlement::Failed).await;
    assert_eq!(settled.unwrap().done, [head]);
    world.until("delivered", 5).await;
    running.stop().await;
    let settled = world.deliveries.settle(&world.client, &[head], Settlement::Failed).await;
    assert_eq!(settled.unwrap().left, [(head, Some(DeliveryState::Failed))]);
    assert_ordered(&keys(&receiver));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_failed_heads_are_skipped_the_others_go_and_a_retry_goes_first_again() {
    for order in [Order::Key, Order::All] {
        let world = World::new().await;
        let is_well = Arc::<AtomicBool>::default();
        let refusing = Arc::clone(&is_well);
        let receiver = Receiver::judging(move |request| {
            let is_refused = request.contains(": k0:000") && !refusing.load(Ordering::SeqCst);
            answer(if is_refused { "500 Oops" } else { "200 OK" }, "", "")
        })
        .await;
        let skipping = ProcessorSettings {
            on_head_failure: OnHeadFailure::Skip,
            ..in_order(order, &receiver.url("127.0.0.1"))
        };
        insert(&world, &of_keys(1, 5)).await;
        let running = run(&world, skipping.clone());
        world.until("delivered", 4).await;
        world.until("failed", 1).await;
        running.stop().await;
        is_well.store(true, Ordering::SeqCst);
        insert(&world, &[of_key("k0:005")]).await;
        let head = id_of(&world, "k0:000").await;
        world.deliveries.retry(&world.client, &[head]).await.unwrap();
        assert_eq!(blocked_by(&world, "k0:005").await, Some(head));
        let running = run(&world, skipping);
        world.until("delivered", 6).await;
        running.stop().await;
        assert_eq!(keys(&receiver)[7..], ["k0:000", "k0:005"], "{order:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_deliveries_go_one_at_a_time_behind_a_stored_cursor() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let receiver = Receiver::gated(answer("200 OK", "", ""), &gate).await;
    let url = receiver.url("127.0.0.1");
    let all = || ProcessorSettings { order: Order::All, ..patient(&url) };
    let running = [run(&world, all()), run(&world, all())];
    let registered = "select count(*) from walpost.webhook_destination where ordering = 'all'";
    until(LIMIT, "its row", async || world.number(registered).await == 1).await;
    // Whoever creates them, and whatever key they say.
    for id in ids("a", 20) {
        insert(&world, &[delivery(&id)]).await;
    }
    let sql = "insert into walpost.webhook_delivery (destination, event_id, idempotency_key, body) \
               values ('logistics', 'b', 'a020', 'b')";
    world.client.batch_execute(sql).await.unwrap();
    for calls in 1..=21 {
        until(LIMIT, "a call", async || receiver.requests().len() == calls).await;
        world.polled_in_turn().await;
        assert_eq!(receiver.requests().len(), calls, "one at a time");
        assert_eq!(blocked(&world).await, 21 - calls as u64);
        gate.add_permits(1);
    }
    world.until("delivered", 21).await;
    for each in running {
        each.stop().await;
    }
    assert_eq!(keys(&receiver), ids("a", 21));
    let cursor = "select cursor_id from walpost.webhook_destination";
    let last = id_of(&world, "b").await;
    assert_eq!(world.number(cursor).await, last - 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_commits_late_is_not_passed_and_holds_up_no_other_key() {
    for order in [Order::Key, Order::All] {
        let world = World::new().await;
        let receiver = Receiver::answering(answer("200 OK", "", "")).await;
        let running = run(&world, in_order(order, &receiver.url("127.0.0.1")));
        let registered = "select count(*) from walpost.webhook_destination";
        until(LIMIT, "its row", async || world.number(registered).await == 1).await;
        // One that writes elsewhere is nobody's matter.
        let mut elsewhere = world.database.connect().await;
        let elsewhere = elsewhere.transaction().await.unwrap();
        elsewhere.batch_execute("create table elsewhere ()").await.unwrap();

        let mut late = world.database.connect().await;
        let late = late.transaction().await.unwrap();
        world.deliveries.insert(&late, &[of_key("k0:000")]).await.unwrap();
        let (client, deliveries) = (world.database.connect().await, world.deliveries.clone());
        let next = tokio::spawn(async move {
            deliveries.insert(&client, &[of_key("k0:001")]).await.unwrap();
        });
        let waiting = "select count(*) from pg_stat_activity where datname = current_database() \
                       and wait_event = 'advisory'";
        until(LIMIT, "one that waits", async || world.number(waiting).await == 1).await;
        let expected = match order {
            // Of another key.
            Order::Key => {
                insert(&world, &[of_key("k1:000")]).await;
                world.until("delivered", 1).await;
                vec!["k1:000", "k0:000", "k0:001"]
            }
            Order::All | Order::None => vec!["k0:000", "k0:001"],
        };
        late.commit().await.unwrap();
        next.await.unwrap();
        world.until("delivered", expected.len() as i64).await;
        running.stop().await;
        assert_eq!(keys(&receiver), expected);
        elsewhere.rollback().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_creates_many_keys_at_once_waits_for_nobody_in_a_circle() {
    let world = World::new().await;
    let mut inserting = tokio::task::JoinSet::new();
    for writer in 0..6 {
        let (client, deliveries) = (world.database.connect().await, world.deliveries.clone());
        inserting.spawn(async move {
            for round in 0..10 {
                // Each in an order of its own.
                let of = |number: usize| of_key(&format!("k{}:{writer}-{round}", number % 40));
                let mut new: Vec<NewDelivery> = (0..40).map(of).collect();
                new.rotate_left((writer * 7 + round) % 40);
                if writer % 2 == 0 {
                    new.reverse();
                }
                assert_eq!(deliveries.insert(&client, &new).await.unwrap(), 40);
            }
        });
    }
    inserting.join_all().await;
    assert_eq!(world.number("select count(*) from walpost.webhook_delivery").await, 2_400);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_held_goes_in_its_order() {
    for order in [Order::Key, Order::All] {
        let world = World::new().await;
        let receiver = Receiver::answering(answer("200 OK", "", "")).await;
        world.deliveries.disable(&world.client, NAME, "a reason").await.unwrap();
        insert(&world, &of_keys(1, 30)).await;
        let running = run(&world, in_order(order, &receiver.url("127.0.0.1")));
        world.until("held", 30).await;
        world.deliveries.enable(&world.client, NAME).await.unwrap();
        // From the end on, as somebody might retry them.
        let ids = "select id::text from walpost.webhook_delivery order by id desc";
        for id in world.texts(ids).await {
            world.deliveries.retry(&world.client, &[id.parse().unwrap()]).await.unwrap();
        }
        world.until("delivered", 30).await;
        running.stop().await;
        assert_eq!(assert_ordered(&keys(&receiver)), 30, "{order:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_no_longer_goes_in_order_waits_for_nobody() {
    let world = World::new().await;
    let is_well = Arc::<AtomicBool>::default();
    let receiver = refusing_k0(&is_well).await;
    let url = receiver.url("127.0.0.1");
    insert(&world, &of_keys(1, 3)).await;
    let running = run(&world, in_order(Order::Key, &url));
    world.until("failed", 1).await;
    until(LIMIT, "what is blocked", async || blocked(&world).await == 2).await;
    running.stop().await;
    is_well.store(true, Ordering::SeqCst);
    // First they skip what has failed, then nothing has an order.
    let skipping =
        ProcessorSettings { on_head_failure: OnHeadFailure::Skip, ..in_order(Order::Key, &url) };
    let running = run(&world, skipping);
    world.until("delivered", 2).await;
    running.stop().await;
    is_well.store(false, Ordering::SeqCst);
    insert(&world, &[of_key("k0:003"), of_key("k0:004")]).await;
    let running = run(&world, in_order(Order::Key, &url));
    until(LIMIT, "what is blocked", async || blocked(&world).await == 2).await;
    running.stop().await;
    is_well.store(true, Ordering::SeqCst);
    let running = run(&world, settings(&url));
    world.until("delivered", 4).await;
    running.stop().await;
}

/// A failed head of the key, and what waits for it, past all triggers. As they are to stay:
/// of rows that are changed the old versions stay in the indexes while anybody, as an
/// automatic analyze, has a snapshot from before, and are read.
async fn plant_many(world: &World, key: &str) {
    let many = format!(
        "insert into walpost.webhook_delivery (destination, event_id, idempotency_key, body, \
         order_key, state, attempts, fence, next_attempt_at, finished_at, outcome) \
         select '{NAME}', 'head', 'head', 'b', key, 'failed', 3, 3, null::timestamptz, now(), \
         'http_5xx' from (values ('{key}')) as one (key); \
         insert into walpost.webhook_delivery (destination, event_id, idempotency_key, body, \
         order_key) select '{NAME}', 'w' || n, n, 'b', '{key}' from generate_series(1, {MANY}) n"
    );
    world.past_triggers(&many).await;
    world.client.batch_execute("vacuum analyze walpost.webhook_delivery").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: takes long"]
async fn claims_look_at_few_of_many_that_are_blocked() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    plant_many(&world, "k0").await;
    let by_key = in_order(Order::Key, &receiver.url("127.0.0.1"));
    // Each is looked at once, and is out of the way then.
    let running = run(&world, by_key.clone());
    let set_aside = "select count(*) from walpost.webhook_delivery where blocked_by is not null";
    until(LIMIT * 4, "all set aside", async || world.number(set_aside).await == MANY).await;
    running.stop().await;
    world.client.batch_execute("vacuum analyze walpost.webhook_delivery").await.unwrap();
    // At its start a processor looks once whether all wait for something.
    let mut read = Vec::new();
    for delivered in [0, 6] {
        alone(&world).await;
        let before = entries_read(&world).await;
        let new = &of_keys(3, 3)[..];
        let others = |one: &&NewDelivery| one.order_key.as_deref() != Some("k0") && delivered > 0;
        insert(&world, &new.iter().filter(others).cloned().collect::<Vec<_>>()).await;
        let running = run(&world, by_key.clone());
        world.until("delivered", delivered).await;
        for _ in 0..10 {
            world.polled_in_turn().await;
        }
        running.stop().await;
        alone(&world).await;
        read.push(entries_read(&world).await - before);
    }
    assert!(read[1] - read[0] < 20_000, "{read:?} entries");
}

/// On PostgreSQL 15: since 18 the start reads one row without an index.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: an older PostgreSQL"]
async fn where_all_go_in_order_a_claim_looks_at_the_head_alone() {
    let world = World::on(postgres_of(15).fresh_database().await).await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    plant_many(&world, "").await;
    alone(&world).await;
    let before = entries_read(&world).await;
    let rows_read =
        "select seq_tup_read from pg_stat_all_tables where relname = 'webhook_delivery'";
    let rows = world.number(rows_read).await;
    // Each claim looks at its destination, two or three times.
    let looks = "select (coalesce(seq_scan, 0) + coalesce(idx_scan, 0))::int8 \
                 from pg_stat_all_tables where relname = 'webhook_destination'";
    let looked = world.number(looks).await;
    let running = run(&world, in_order(Order::All, &receiver.url("127.0.0.1")));
    for _ in 0..20 {
        world.polled_in_turn().await;
    }
    running.stop().await;
    alone(&world).await;
    let read = entries_read(&world).await - before;
    let by = world.texts("select indexrelname || ' ' || idx_scan || ' ' || idx_tup_read || ' ' || idx_tup_fetch from pg_stat_all_indexes where relname = 'webhook_delivery'").await;
    let looked = world.number(looks).await - looked;
    assert!(read < 10 * looked, "{read} entries in {looked} looks {by:?}");
    assert_eq!(world.number(rows_read).await, rows, "read without an index");
    assert_eq!(receiver.requests().len(), 0);
    assert_eq!(blocked(&world).await, MANY as u64);
}
