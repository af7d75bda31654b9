//! Deliveries as rows: what becomes of them by what receivers do.

use std::{sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use walpost_testkit::{MARKER, QUOTING_SCHEMA, Quoting, until};
use walpost_webhook::{
    DeliveryState, OnUnknownOutcome, Pace, ProcessorSettings, RetryPolicy, Schedule, StoreError,
};

use crate::{
    receiver::{Receiver, answer},
    world::{LIMIT, NAME, World, delivery, ids, keys, run, settings, sorted_keys},
};

#[tokio::test(flavor = "multi_thread")]
async fn each_delivery_is_sent_once_over_few_connections() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "{\"status\":\"ok\"}")).await;
    let ids = ids("a", 500);
    world.insert(&ids).await;
    let running = run(&world, settings(&receiver.url("127.0.0.1")));
    world.until("delivered", 500).await;
    let snapshot = running.stop().await;
    assert_eq!(sorted_keys(&receiver), ids);
    // Where a machine stalls, one that is not ready in time is not used again.
    assert!(receiver.connections() < 100, "{}", receiver.connections());
    assert_eq!((snapshot.delivered, snapshot.retries, snapshot.lost), (500, 0, 0));
    let noted = "select count(*) from walpost.webhook_attempt a join walpost.webhook_delivery d \
                 on d.id = a.delivery and d.fence = a.number \
                 where a.outcome = 'success' and a.status = 200 and a.response is null \
                 and d.attempts = 1";
    assert_eq!(world.number(noted).await, 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_has_one_delivery_for_each_destination() {
    let mut world = World::new().await;
    let mut other = delivery("a");
    other.destination = "billing".to_owned();
    let both = [delivery("a"), other, delivery("a")];
    assert_eq!(world.deliveries.insert(&world.client, &both).await.unwrap(), 2);
    assert_eq!(world.deliveries.insert(&world.client, &both).await.unwrap(), 0);
    let tx = world.client.transaction().await.unwrap();
    assert_eq!(world.deliveries.insert(&tx, &[delivery("b")]).await.unwrap(), 1);
    tx.rollback().await.unwrap();
    assert_eq!(world.number("select count(*) from walpost.webhook_delivery").await, 2);
    for (what, id) in [("event_id", ""), ("event_id", &*"a".repeat(513))] {
        match world.deliveries.insert(&world.client, &[delivery(id)]).await.unwrap_err() {
            StoreError::Bounds { what: found, .. } => assert_eq!(found, what),
            other => panic!("{other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_is_sent_again_with_the_same_key_until_none_is_left() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("500 Oops", "", "no such table")).await;
    world.insert(&ids("a", 1)).await;
    let running = run(&world, settings(&receiver.url("127.0.0.1")));
    world.until("failed", 1).await;
    let snapshot = running.stop().await;
    assert_eq!(keys(&receiver), ["a000"; 3]);
    assert_eq!(world.row("a000").await, ("failed".to_owned(), 3, Some("http_5xx".to_owned())));
    assert_eq!((snapshot.exhausted, snapshot.retries), (1, 2));
    let answers = "select convert_from(response, 'UTF8') || status || number \
                   from walpost.webhook_attempt order by number";
    let expected = ["no such table5001", "no such table5002", "no such table5003"];
    assert_eq!(world.texts(answers).await, expected);
    // An operator's retry has all attempts again, and the same key.
    let id = world.number("select id from walpost.webhook_delivery").await;
    let healthy = Receiver::answering(answer("200 OK", "", "")).await;
    assert_eq!(world.deliveries.retry(&world.client, &[id]).await.unwrap().done, [id]);
    assert_eq!(world.row("a000").await, ("pending".to_owned(), 0, Some("http_5xx".to_owned())));
    let running = run(&world, settings(&healthy.url("127.0.0.1")));
    world.until("delivered", 1).await;
    running.stop().await;
    assert_eq!(keys(&healthy), ["a000"]);
    let decided = world.deliveries.retry(&world.client, &[id]).await.unwrap();
    assert_eq!(decided.left, [(id, Some(DeliveryState::Delivered))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_shifted_clock_the_erp_posts_eight_times_and_at_its_times() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("503 Busy", "", "")).await;
    world.insert(&ids("a", 1)).await;
    world.hold_retries().await;
    let policy = RetryPolicy::new(Schedule::erp());
    let running = run(&world, ProcessorSettings { policy, ..settings(&receiver.url("127.0.0.1")) });
    for (attempts, wait) in (1..).zip([5, 30, 300, 1_800, 14_400, 14_400, 14_400]) {
        let ended = format!(
            "select count(*) from walpost.webhook_delivery where state = 'pending' \
             and attempts = {attempts}"
        );
        until(LIMIT, "the end of an attempt", async || world.number(&ended).await == 1).await;
        let waits = world.wait().await;
        // A little of it goes by until the attempt is written down.
        assert!((wait - 2..=wait).contains(&waits), "{waits} behind attempt {attempts}");
        assert_eq!(receiver.requests().len(), attempts);
        world.let_go().await;
    }
    world.until("failed", 1).await;
    running.stop().await;
    assert_eq!(keys(&receiver), ["a000"; 8]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_may_name_its_own_limit_wait_path_and_type() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("500 Oops", "", "")).await;
    let mut once = delivery("once");
    once.retry_limit = Some(0);
    once.message.path = Some("/plan/7/subscribe".to_owned());
    once.message.content_type = Some("text/plain".to_owned());
    let mut five = delivery("five");
    (five.retry_limit, five.retry_wait) = (Some(4), Some(Duration::from_millis(1)));
    world.deliveries.insert(&world.client, &[once, five]).await.unwrap();
    let running = run(&world, settings(&receiver.url("127.0.0.1")));
    world.until("failed", 2).await;
    running.stop().await;
    assert_eq!((world.row("once").await.1, world.row("five").await.1), (1, 5));
    let requests = receiver.requests();
    let of_once: Vec<&String> = requests.iter().filter(|one| one.contains("Key: once")).collect();
    assert_eq!(of_once.len(), 1);
    assert!(of_once[0].starts_with("POST /hook/plan/7/subscribe HTTP/1.1\r\n"));
    assert!(of_once[0].contains("Content-Type: text/plain\r\n"), "{}", of_once[0]);
    assert_eq!(requests.len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_is_gone_is_disabled_and_what_is_for_it_held() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("410 Gone", "", "")).await;
    let ids = ids("a", 60);
    world.insert(&ids[..50]).await;
    let mut settings = settings(&receiver.url("127.0.0.1"));
    settings.pace = Pace { concurrency: 4, ..settings.pace };
    let running = run(&world, settings.clone());
    world.until("held", 50).await;
    // What comes from then on is held as well.
    world.insert(&ids[50..]).await;
    world.until("held", 60).await;
    assert_eq!(world.row("a059").await, ("held".to_owned(), 0, None));
    let snapshot = running.stop().await;
    let sent = receiver.requests().len();
    assert!(snapshot.disabled >= 1 && sent < 50, "{sent} {snapshot:?}");
    let place = "select state || ' ' || reason from walpost.webhook_destination";
    assert_eq!(world.texts(place).await, ["disabled gone"]);
    assert_eq!(world.deliveries.release(&world.client, NAME, 100).await.unwrap(), 0);

    let healthy = Receiver::answering(answer("200 OK", "", "")).await;
    world.deliveries.enable(&world.client, NAME).await.unwrap();
    assert_eq!(world.deliveries.release(&world.client, NAME, 40).await.unwrap(), 40);
    assert_eq!(world.deliveries.release(&world.client, NAME, 100).await.unwrap(), 20);
    let running = run(&world, self::settings(&healthy.url("127.0.0.1")));
    world.until("delivered", 60).await;
    running.stop().await;
    assert_eq!(sorted_keys(&healthy), ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_committed_once_its_destination_is_enabled_again_is_sent() {
    let mut world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let operator = world.database.connect().await;
    world.deliveries.disable(&operator, NAME, "a reason").await.unwrap();
    let tx = world.client.transaction().await.unwrap();
    assert_eq!(world.deliveries.insert(&tx, &[delivery("late")]).await.unwrap(), 1);
    world.deliveries.enable(&operator, NAME).await.unwrap();
    assert_eq!(world.deliveries.release(&operator, NAME, 100).await.unwrap(), 0);
    tx.commit().await.unwrap();
    let running = run(&world, settings(&receiver.url("127.0.0.1")));
    world.until("delivered", 1).await;
    running.stop().await;
    assert_eq!(keys(&receiver), ["late"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_who_create_the_same_deliveries_wait_for_each_other_in_one_order() {
    let world = World::new().await;
    // Each row takes its time, so that both are in the midst of theirs.
    world
        .client
        .batch_execute(
            "create function linger() returns trigger language plpgsql as \
             $$ begin perform pg_sleep(0.3); return new; end $$; \
             create trigger linger before insert on walpost.webhook_delivery \
             for each row execute function linger()",
        )
        .await
        .unwrap();
    let other = world.database.connect().await;
    let (there, back) = ([delivery("a"), delivery("b")], [delivery("b"), delivery("a")]);
    let (first, second) = tokio::join!(
        world.deliveries.insert(&world.client, &there),
        world.deliveries.insert(&other, &back),
    );
    assert_eq!(first.unwrap() + second.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_must_not_happen_twice_is_sent_once_and_waits_as_unknown() {
    let world = World::new().await;
    // Takes the request, and goes away without an answer.
    let receiver =
        Receiver::scripted(
            |mut stream, notes| async move { notes.read(&mut stream).await.map(drop) },
        )
        .await;
    world.insert(&ids("a", 3)).await;
    let mut settings = settings(&receiver.url("127.0.0.1"));
    settings.policy.on_unknown_outcome = OnUnknownOutcome::Hold;
    let running = run(&world, settings);
    world.until("unknown", 3).await;
    let snapshot = running.stop().await;
    assert_eq!((receiver.requests().len(), snapshot.unknown), (3, 3));
    assert_eq!(world.row("a000").await, ("unknown".to_owned(), 1, Some("broken".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_transaction_is_open_during_a_call() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let receiver = Receiver::gated(answer("200 OK", "", ""), &gate).await;
    world.insert(&ids("a", 1)).await;
    let mut settings = settings(&receiver.url("127.0.0.1"));
    settings.client.timeout = LIMIT;
    settings.lease = LIMIT * 2;
    let running = run(&world, settings);
    until(LIMIT, "a call", async || receiver.requests().len() == 1).await;
    // The claim is committed and counted, and nothing is locked.
    assert_eq!(world.row("a000").await, ("sending".to_owned(), 1, None));
    let locked = "select id from walpost.webhook_delivery for update nowait";
    world.client.query_one(locked, &[]).await.unwrap();
    let open = "select count(*) from pg_stat_activity where datname = current_database() \
                and pid <> pg_backend_pid() and backend_type = 'client backend' \
                and xact_start < now() - interval '1 s'";
    // Long before the call would end by itself.
    until(LIMIT / 4, "none open", async || world.number(open).await == 0).await;
    assert_eq!(receiver.requests().len(), 1);
    gate.add_permits(1);
    world.until("delivered", 1).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_processors_share_a_destination() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let running: Vec<_> =
        (0..3).map(|_| run(&world, settings(&receiver.url("127.0.0.1")))).collect();
    let ids = ids("a", 600);
    for some in ids.chunks(60) {
        world.insert(some).await;
    }
    world.until("delivered", 600).await;
    let mut delivered = 0;
    for running in running {
        delivered += running.stop().await.delivered;
    }
    assert_eq!((sorted_keys(&receiver), delivered), (ids, 600));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_made_a_request_fails_and_says_why() {
    let world = World::new().await;
    let receiver = Receiver::answering(answer("200 OK", "", "")).await;
    let mut odd = delivery("odd");
    odd.message.path = Some("/../admin".to_owned());
    world.deliveries.insert(&world.client, &[odd, delivery("good")]).await.unwrap();
    let running = run(&world, settings(&receiver.url("127.0.0.1")));
    world.until("failed", 1).await;
    world.until("delivered", 1).await;
    running.stop().await;
    assert_eq!(keys(&receiver), ["good"]);
    assert_eq!(world.row("odd").await, ("failed".to_owned(), 3, Some("request".to_owned())));
    let details = "select distinct detail from walpost.webhook_attempt where outcome = 'request'";
    let details = world.texts(details).await;
    assert!(details[0].contains("a path begins with a slash"), "{details:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_tables_end_a_processor_and_say_what_to_do() {
    let world = World::new().await;
    world.client.batch_execute("drop schema walpost cascade").await.unwrap();
    let error = run(&world, settings("http://127.0.0.1:9/")).error().await;
    assert!(matches!(error, StoreError::NotMigrated { .. }), "{error}");
    assert!(error.to_string().contains("walpost migrate --set webhook"), "{error}");
}

#[tokio::test]
async fn a_value_that_a_trigger_quotes_is_in_no_error() {
    let world = World::new().await;
    world.client.batch_execute(QUOTING_SCHEMA).await.unwrap();
    let value = format!("'{MARKER}'");
    for quoting in Quoting::ALL {
        let trigger = quoting.trigger("before insert on walpost.webhook_delivery", &value);
        world.client.batch_execute(&trigger).await.unwrap();
        let error = world.deliveries.insert(&world.client, &[delivery("a")]).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(quoting.state), "{}: {text}", quoting.name);
        quoting.is_hidden_in(&[text, format!("{error:?}")]);
    }
}
