//! Order over transactions, locks and sessions that get in each other's way.
//!
//! Long because each schedule is told from its beginning to its end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_postgres::Client;
use walpost_testkit::until;
use walpost_webhook::{
    NewDelivery, OnHeadFailure, Order, ProcessorSettings, RetryPolicy, Schedule, Settlement,
};

use crate::{
    order::{assert_ordered, in_order, of_key, of_keys},
    receiver::{Receiver, answer},
    world::{NAME, World, delivery, keys, run, run_at},
};

/// Before [`World::until`] gives up, so that what is left can be told.
pub(crate) const SOON: Duration = Duration::from_secs(50);

async fn refusing(word: &'static str, is_well: &Arc<AtomicBool>) -> Receiver {
    let is_well = Arc::clone(is_well);
    Receiver::judging(move |request| {
        let is_refused = request.contains(word) && !is_well.load(Ordering::SeqCst);
        answer(if is_refused { "500 Oops" } else { "200 OK" }, "", "")
    })
    .await
}

async fn id_of(world: &World, event: &str) -> i64 {
    let sql = format!("select id from walpost.webhook_delivery where event_id = '{event}'");
    world.number(&sql).await
}

async fn insert(world: &World, new: &[NewDelivery]) {
    assert_eq!(world.deliveries.insert(&world.client, new).await.unwrap(), new.len() as u64);
}

async fn dump(world: &World) -> Vec<String> {
    world
        .texts(
            "select format('%s %s %s key=%s by=%s next=%s cursor=%s', id, event_id, state, \
             order_key, blocked_by, next_attempt_at, (select cursor_id from \
             walpost.webhook_destination where name = destination)) \
             from walpost.webhook_delivery where state <> 'delivered' order by id limit 10",
        )
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_commits_while_the_cursor_passes_it_is_sent() {
    let world = World::new().await;
    let is_well = Arc::<AtomicBool>::default();
    let receiver = refusing(": k0:000", &is_well).await;
    insert(&world, &[of_key("k0:000")]).await;
    let skipping = ProcessorSettings {
        on_head_failure: OnHeadFailure::Skip,
        ..in_order(Order::All, &receiver.url("127.0.0.1"))
    };
    let running = run(&world, skipping);
    world.until("failed", 1).await;
    is_well.store(true, Ordering::SeqCst);
    let head = id_of(&world, "k0:000").await;
    let operator = world.database.connect().await;
    operator.batch_execute("begin").await.unwrap();
    world.deliveries.retry(&operator, &[head]).await.unwrap();
    // Meanwhile the next one comes, and the cursor passes the one that has failed.
    insert(&world, &[of_key("k0:001")]).await;
    world.until("delivered", 1).await;
    operator.batch_execute("commit").await.unwrap();
    let done = timeout(SOON, world.until("delivered", 2)).await;
    assert!(done.is_ok(), "it is never sent: {:?}", dump(&world).await);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_beside_new_deliveries_are_sent_where_all_go_in_order() {
    let world = World::new().await;
    let receiver = refusing(": bad", &Arc::default()).await;
    let mut skipping = ProcessorSettings {
        on_head_failure: OnHeadFailure::Skip,
        ..in_order(Order::All, &receiver.url("127.0.0.1"))
    };
    skipping.policy = RetryPolicy::new(Schedule::fixed(Duration::from_millis(1), 0));
    let running = [run(&world, skipping.clone()), run(&world, skipping)];
    for round in 0..30 {
        insert(&world, &[of_key(&format!("bad:{round:03}"))]).await;
        world.until("failed", round + 1).await;
        let bad = id_of(&world, &format!("bad:{round:03}")).await;
        let other = world.database.connect().await;
        let (deliveries, id) = (world.deliveries.clone(), [bad]);
        let new = [of_key(&format!("good:{round:03}"))];
        let (retried, made) = tokio::join!(
            deliveries.retry(&other, &id),
            world.deliveries.insert(&world.client, &new)
        );
        retried.unwrap();
        made.unwrap();
        // It is refused again, or nobody sends it.
        let done = timeout(SOON, world.until("failed", round + 1)).await;
        assert!(done.is_ok(), "round {round}: {:?}", dump(&world).await);
    }
    for each in running {
        each.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_settled_under_repeatable_read_lets_those_behind_it_go() {
    let world = World::new().await;
    let is_well = Arc::<AtomicBool>::default();
    let receiver = refusing(": k0:000", &is_well).await;
    insert(&world, &[of_key("k0:000")]).await;
    let running = run(&world, in_order(Order::Key, &receiver.url("127.0.0.1")));
    world.until("failed", 1).await;
    let head = id_of(&world, "k0:000").await;
    let operator = world.database.connect().await;
    let look =
        "begin isolation level repeatable read; select count(*) from walpost.webhook_delivery";
    operator.batch_execute(look).await.unwrap();
    insert(&world, &[of_key("k0:001")]).await;
    let blocked = "select count(*) from walpost.webhook_delivery where blocked_by is not null";
    until(SOON, "it is found behind", async || world.number(blocked).await == 1).await;
    let settled = world.deliveries.settle(&operator, &[head], Settlement::Failed).await.unwrap();
    assert_eq!(settled.done, [head]);
    operator.batch_execute("commit").await.unwrap();
    let done = timeout(SOON, world.until("delivered", 1)).await;
    assert!(done.is_ok(), "it stays blocked by what is settled: {:?}", dump(&world).await);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn order_holds_where_repeatable_read_is_the_default() {
    let world = World::new().await;
    world
        .client
        .batch_execute(
            "do $$ begin execute format('alter database %I set default_transaction_isolation = \
             ''repeatable read''', current_database()); end $$",
        )
        .await
        .unwrap();
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let url = receiver.url("127.0.0.1");
    let running: Vec<_> = (0..3).map(|_| run(&world, in_order(Order::Key, &url))).collect();
    for some in of_keys(10, 60).chunks(50) {
        insert(&world, some).await;
    }
    let done = timeout(SOON, world.until("delivered", 600)).await;
    assert!(done.is_ok(), "left: {:?}", dump(&world).await);
    for each in running {
        each.stop().await;
    }
    assert_eq!(assert_ordered(&keys(&receiver)), 600);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_call_creates_goes_as_given_where_all_go_in_order() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let running = run(&world, in_order(Order::All, &receiver.url("127.0.0.1")));
    let known = "select count(*) from walpost.webhook_destination where ordering = 'all'";
    until(SOON, "registered", async || world.number(known).await == 1).await;
    insert(&world, &[delivery("z-first"), delivery("m-second"), delivery("a-third")]).await;
    world.until("delivered", 3).await;
    running.stop().await;
    assert_eq!(keys(&receiver), ["z-first", "m-second", "a-third"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_creates_for_several_destinations_in_order_waits_for_nobody_in_a_circle() {
    let world = World::new().await;
    world
        .client
        .batch_execute(
            "insert into walpost.webhook_destination (name, ordering) values ('a', 'all'), ('b', 'all')",
        )
        .await
        .unwrap();
    let to = |destination: &str, id: String| NewDelivery {
        destination: destination.to_owned(),
        ..delivery(&id)
    };
    let mut tasks = Vec::new();
    for (writer, first, second) in [(0, "a", "b"), (1, "b", "a")] {
        let (client, deliveries) = (world.database.connect().await, world.deliveries.clone());
        let batches: Vec<Vec<NewDelivery>> = (0..50)
            .map(|batch| {
                let one = (0..100).map(|n| to(first, format!("1-{writer}-{batch}-{n:03}")));
                let two = (0..100).map(|n| to(second, format!("2-{writer}-{batch}-{n:03}")));
                one.chain(two).collect()
            })
            .collect();
        tasks.push(tokio::spawn(async move {
            let mut refused = Vec::new();
            for batch in batches {
                if let Err(error) = deliveries.insert(&client, &batch).await {
                    refused.push(error.to_string());
                }
            }
            refused
        }));
    }
    for task in tasks {
        let refused = task.await.unwrap();
        assert!(refused.is_empty(), "{} refused: {:?}", refused.len(), refused.first());
    }
}

/// Whoever has locked the delivery of this event, until the end of its transaction.
async fn locking(world: &World, event: &str) -> Client {
    let somebody = world.database.connect().await;
    let lock = format!(
        "begin; select from walpost.webhook_delivery where event_id = '{event}' for update"
    );
    somebody.batch_execute(&lock).await.unwrap();
    somebody
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_holds_up_its_key_alone() {
    let world = World::new().await;
    let is_well = Arc::<AtomicBool>::default();
    let receiver = refusing(": k0:000", &is_well).await;
    insert(&world, &[of_key("k0:000"), of_key("k0:001")]).await;
    let somebody = locking(&world, "k0:001").await;
    let running = run(&world, in_order(Order::Key, &receiver.url("127.0.0.1")));
    insert(&world, &[of_key("k1:000"), of_key("k1:001")]).await;
    let done = timeout(SOON, world.until("delivered", 2)).await;
    somebody.batch_execute("rollback").await.unwrap();
    assert!(done.is_ok(), "the other key waits: {:?}", dump(&world).await);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_behind_a_head_holds_up_no_ends() {
    let world = World::new().await;
    let is_well = Arc::<AtomicBool>::default();
    let receiver = refusing(": k0:000", &is_well).await;
    insert(&world, &[of_key("k0:000"), of_key("k0:001")]).await;
    let running = run(&world, in_order(Order::Key, &receiver.url("127.0.0.1")));
    world.until("failed", 1).await;
    let blocked = "select count(*) from walpost.webhook_delivery where blocked_by is not null";
    until(SOON, "it is found behind", async || world.number(blocked).await == 1).await;
    let somebody = locking(&world, "k0:001").await;
    is_well.store(true, Ordering::SeqCst);
    let head = id_of(&world, "k0:000").await;
    world.deliveries.retry(&world.client, &[head]).await.unwrap();
    until(SOON, "the head arrives", async || {
        keys(&receiver).iter().filter(|key| *key == "k0:000").count() == 4
    })
    .await;
    insert(&world, &[of_key("k1:000"), of_key("k1:001")]).await;
    let done = timeout(SOON, world.until("delivered", 3)).await;
    somebody.batch_execute("rollback").await.unwrap();
    assert!(done.is_ok(), "ends of others wait: {:?}", dump(&world).await);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_goes_by_id_where_the_order_changes_to_all() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let new: Vec<_> = (0..2_500).map(|n| delivery(&format!("k:{n:04}"))).collect();
    insert(&world, &new).await;
    // The first ones have been tried again and again.
    let touched = "do $$ begin for n in 1..30 loop update walpost.webhook_delivery \
                   set next_attempt_at = clock_timestamp() where event_id < 'k:0050'; end loop; end $$";
    world.client.batch_execute(touched).await.unwrap();
    let running = run(&world, in_order(Order::All, &receiver.url("127.0.0.1")));
    until(SOON, "a hundred", async || keys(&receiver).len() >= 100).await;
    running.stop().await;
    let arrived = keys(&receiver);
    assert_ordered(&arrived);
}

/// The same database by another port.
fn by_port(world: &World, port: u16) -> String {
    let url = world.database.url();
    url.replacen(&format!(":{}", port_of(world)), &format!(":{port}"), 1)
}

fn port_of(world: &World) -> u16 {
    let config: tokio_postgres::Config = world.database.url().parse().unwrap();
    config.get_ports()[0]
}

/// Passes on what a client says, and of what it is told `bytes` and nothing more, without
/// an end: as to a process that has stopped.
async fn reading_no_further(target: u16, bytes: u64) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", target)).await.unwrap();
            tokio::spawn(async move {
                let ((mut says, mut hears), (told, mut asked)) =
                    (client.into_split(), server.into_split());
                let mut some = told.take(bytes);
                let asking = copy(&mut says, &mut asked);
                let telling = copy(&mut some, &mut hears);
                let _ = tokio::join!(asking, telling);
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claimer_that_does_not_read_stops_no_other() {
    for order in [Order::Key, Order::All] {
        let world = World::new().await;
        let receiver = Receiver::answering(answer("200 OK", "", "")).await;
        // More than what lies between a server and who does not read.
        let (count, bytes) = if order == Order::All { (1, 60_000_000) } else { (60, 1_000_000) };
        let large = format!(
            "insert into walpost.webhook_delivery (destination, event_id, idempotency_key, body, \
             order_key) select '{NAME}', 'large' || n, n, \
             convert_to(repeat('x', {bytes}), 'UTF8'), 'large' || n from generate_series(1, {count}) n"
        );
        world.client.batch_execute(&large).await.unwrap();
        let mut settings = in_order(order, &receiver.url("127.0.0.1"));
        settings.pace.concurrency = 60;
        settings.in_flight_max_bytes = 100_000_000;
        let port = reading_no_further(port_of(&world), 100_000).await;
        let sleeper = run_at(&by_port(&world, port), settings.clone());
        let claimed = "select count(*) from pg_stat_activity where datname = current_database() \
                       and wait_event = 'ClientWrite'";
        until(SOON, "one that is not read", async || world.number(claimed).await == 1).await;
        let locks = "select count(*) from pg_locks l join pg_database d on d.oid = l.database \
                     where d.datname = current_database() and l.locktype = 'advisory'";
        assert_eq!(world.number(locks).await, 0, "{order:?}: {:?}", dump(&world).await);
        if order == Order::Key {
            insert(&world, &[of_key("k0:000"), of_key("k1:000")]).await;
            let running = run(&world, settings);
            let done = timeout(SOON, world.until("delivered", 2)).await;
            assert!(done.is_ok(), "nothing is sent: {:?}", dump(&world).await);
            running.stop().await;
        }
        drop(sleeper);
    }
}

/// Passes everything on but what a client says behind its second question for the lock of
/// claims: as of a process that has stopped between two writes.
async fn stopping_in_its_claim(target: u16) -> u16 {
    const SYNC: &[u8] = b"S\0\0\0\x04";
    let end_of = |said: &[u8], part: &[u8], from: usize| {
        let mut parts = said[from..].windows(part.len());
        parts.position(|one| one == part).map(|at| from + at + part.len())
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", target)).await.unwrap();
            tokio::spawn(async move {
                let ((mut says, mut hears), (mut told, mut asked)) =
                    (client.into_split(), server.into_split());
                let asking = async {
                    let (mut said, mut passed, mut seen, mut questions) = (Vec::new(), 0, 0, 0);
                    while says.read_buf(&mut said).await? > 0 {
                        while questions < 2
                            && let Some(end) = end_of(&said, b"walpost.webhook_claim", seen)
                        {
                            (seen, questions) = (end, questions + 1);
                        }
                        let stop = (questions == 2).then(|| end_of(&said, SYNC, seen));
                        // The second question passes once all of it is there.
                        let Some(end) = stop.unwrap_or(Some(said.len())) else { continue };
                        asked.write_all(&said[passed..end]).await?;
                        passed = end;
                        if stop.is_some() {
                            std::future::pending::<()>().await;
                        }
                    }
                    Ok::<_, std::io::Error>(())
                };
                let _ = tokio::join!(asking, copy(&mut told, &mut hears));
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claimer_that_stops_in_its_claim_stops_no_other_for_long() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    insert(&world, &[of_key("k0:000"), of_key("k1:000")]).await;
    let by_key = in_order(Order::Key, &receiver.url("127.0.0.1"));
    let port = stopping_in_its_claim(port_of(&world)).await;
    let sleeper = run_at(&by_port(&world, port), by_key.clone());
    let held = "select count(*) from pg_stat_activity where datname = current_database() \
                and state = 'idle in transaction' and query like '%advisory%'";
    until(SOON, "one that has the lock", async || world.number(held).await == 1).await;
    assert_eq!(keys(&receiver), [""; 0], "it has claimed before");
    let running = run(&world, by_key);
    let done = timeout(SOON, world.until("delivered", 2)).await;
    assert!(done.is_ok(), "nothing is sent: {:?}", dump(&world).await);
    running.stop().await;
    drop(sleeper);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_is_no_reason_to_send_before_all_have_their_order() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let new: Vec<_> = (0..2_500).map(|n| delivery(&format!("k:{n:04}"))).collect();
    insert(&world, &new).await;
    let somebody = locking(&world, "k:0007").await;
    let running = run(&world, in_order(Order::All, &receiver.url("127.0.0.1")));
    until(SOON, "one that arrives", async || !keys(&receiver).is_empty()).await;
    let without = "select count(*) from walpost.webhook_delivery where order_key is null";
    assert_eq!(world.number(without).await, 1, "but the one that is locked");
    somebody.batch_execute("rollback").await.unwrap();
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_is_not_forgotten_while_the_row_of_its_destination_is_locked() {
    let world = World::new().await;
    let is_well = Arc::<AtomicBool>::default();
    let receiver = refusing(": k0:000", &is_well).await;
    insert(&world, &[of_key("k0:000"), of_key("k0:001")]).await;
    let skipping = ProcessorSettings {
        on_head_failure: OnHeadFailure::Skip,
        ..in_order(Order::All, &receiver.url("127.0.0.1"))
    };
    let running = run(&world, skipping);
    world.until("failed", 1).await;
    world.until("delivered", 1).await;
    let somebody = world.database.connect().await;
    let lock = "begin; select from walpost.webhook_destination for update";
    somebody.batch_execute(lock).await.unwrap();
    is_well.store(true, Ordering::SeqCst);
    let head = id_of(&world, "k0:000").await;
    world.deliveries.retry(&world.client, &[head]).await.unwrap();
    // Its turn does not wait for that row, and it is known until the cursor has moved.
    world.until("delivered", 2).await;
    let again = "select count(*) from walpost.webhook_sent_again";
    assert_eq!(world.number(again).await, 1);
    somebody.batch_execute("rollback").await.unwrap();
    until(SOON, "the cursor at it", async || world.number(again).await == 0).await;
    insert(&world, &[of_key("k0:002")]).await;
    world.until("delivered", 3).await;
    running.stop().await;
}
