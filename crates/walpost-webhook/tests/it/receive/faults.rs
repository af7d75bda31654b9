//! Handlers that fail, and senders that go away.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use walpost_inbox::{Inbox, Processor, RetrySchedule};
use walpost_testkit::until;
use walpost_webhook::receive::Receiver;

use super::{
    handler::ByType,
    server::{ALREADY, OK, Server, request},
    sign::Sender,
    world::World,
};
use crate::world::LIMIT;

const SENDER: Sender = Sender::Standard;

fn inline(world: &World, answer_within: Duration, handler: ByType) -> Receiver {
    let builder = world.builder().answer_within(answer_within);
    builder.inline(SENDER.path(), SENDER.source(), handler).build().unwrap()
}

async fn start(world: &World) -> Server {
    Server::start(inline(world, LIMIT, ByType::new()).router()).await
}

/// How it was left.
async fn is_untouched(world: &World) -> bool {
    world.rows().await.is_empty() && world.effects().await.is_empty()
}

#[tokio::test]
async fn of_a_handler_that_fails_nothing_is_left_and_it_may_come_again() {
    let world = World::new().await;
    let server = start(&world).await;
    for kind in ["fails", "panics", "select_panics", "swallow", "unique", "late"] {
        for _ in 0..2 {
            let failed = server.event(SENDER, "a", kind).await;
            assert_eq!(failed.problem(), (500, "handler-failed"), "{kind}");
            assert!(is_untouched(&world).await, "{kind}");
        }
    }
    assert_eq!(server.event(SENDER, "a", "first_fails").await.problem().0, 500);
    assert!(is_untouched(&world).await);
    assert_eq!(server.event(SENDER, "a", "first_fails").await.what(), (200, OK));
    assert_eq!(server.event(SENDER, "a", "first_fails").await.what(), (200, ALREADY));
    assert_eq!(world.effects().await, ["a"]);
}

#[tokio::test]
async fn a_handler_that_wants_to_wait_is_asked_again_by_the_sender() {
    let world = World::new().await;
    let server = start(&world).await;
    let later = server.event(SENDER, "a", "transient").await;
    assert_eq!(later.problem(), (503, "store-unavailable"));
    assert!(is_untouched(&world).await);
}

#[tokio::test]
async fn a_conflict_with_another_transaction_is_not_the_senders_business() {
    let world = World::new().await;
    let server = start(&world).await;
    assert_eq!(server.event(SENDER, "a", "conflict").await.what(), (200, OK));
    assert_eq!(world.effects().await, ["a"]);
    assert_eq!(world.number("select last_value from tries").await, 3);
}

#[tokio::test]
async fn what_a_handler_gives_up_is_kept_for_people() {
    let world = World::new().await;
    let server = start(&world).await;
    let first = server.event(SENDER, "a", "gives_up").await;
    assert_eq!(first.what(), (200, r#"{"status":"ok","processing_state":"failed"}"#));
    let copy = server.event(SENDER, "a", "gives_up").await;
    let expected = r#"{"status":"ok","already_processed":true,"processing_state":"failed"}"#;
    assert_eq!(copy.what(), (200, expected));
    assert_eq!(world.effects().await, [""; 0]);
    let given_up = "select count(*) from walpost.inbox where processing_state = 'failed' \
                    and next_attempt_at is null and reason = 'no such invoice' and attempts = 1";
    assert_eq!(world.number(given_up).await, 1);
    // The type is what it is; what is not JSON here is so for a processor too.
    let headers = SENDER.headers("b", "json", br#"{"type":"json"}"#);
    let answer = server.post(&SENDER.path(), &headers, br#"{"type":"json"}"#).await;
    assert_eq!(answer.what(), (200, r#"{"status":"ok","processing_state":"failed"}"#));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_up_is_processed_once_somebody_says_so() {
    let world = World::new().await;
    let server = start(&world).await;
    assert_eq!(server.event(SENDER, "a", "gives_up").await.status, 200);
    let number = world.number("select seq from walpost.inbox").await;
    let _ = Inbox::new().retry(&world.client, &[number]).await.unwrap();
    let processor = Processor::builder(world.place())
        .retries(RetrySchedule::new([Duration::ZERO; 0]))
        .handler(ByType::new())
        .unwrap();
    let attempts = "select fence from walpost.inbox";
    let twice =
        async { until(LIMIT, "an attempt", async || world.number(attempts).await == 2).await };
    processor.run(twice).await.unwrap();
    // It still says no, as it would by the processor in the first place.
    assert_eq!(world.rows().await[0][3], "failed");
}

#[tokio::test]
async fn a_handler_that_ends_its_transaction_is_found_out() {
    let world = World::new().await;
    let server = start(&world).await;
    let failed = server.event(SENDER, "a", "ends").await;
    assert_eq!(failed.problem(), (500, "handler-failed"));
    // What it has committed by itself is there, under a lease that will end.
    assert_eq!(world.rows().await[0][3], "processing");
}

#[tokio::test]
async fn a_handler_that_takes_too_long_is_given_up_in_time() {
    let world = World::new().await;
    let handler = ByType::new();
    let short = inline(&world, Duration::from_millis(500), handler.clone());
    let server = Server::start(short.router()).await;
    let late = server.event(SENDER, "a", "hold").await;
    assert_eq!(late.problem(), (503, "timed-out"));
    short.drained().await;
    let open = "select count(*) from pg_stat_activity where datname = current_database() \
                and state like 'idle in transaction%'";
    until(LIMIT, "an end of its transaction", async || world.number(open).await == 0).await;
    assert!(is_untouched(&world).await);
    handler.gate.open();
    let server = Server::start(inline(&world, LIMIT, handler).router()).await;
    assert_eq!(server.event(SENDER, "a", "hold").await.what(), (200, OK));
    assert_eq!(world.effects().await, ["a"]);
}

#[tokio::test]
async fn types_that_the_handler_does_not_know_are_stored() {
    let world = World::new().await;
    let server = start(&world).await;
    assert_eq!(server.event(SENDER, "a", "unknown").await.what(), (200, OK));
    assert_eq!(world.rows().await[0][3], "pending");
    assert_eq!(world.effects().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_sender_that_is_gone_all_is_done_or_nothing() {
    let world = World::new().await;
    let handler = ByType::new();
    let receiver = inline(&world, LIMIT, handler.clone());
    let server = Server::start(receiver.router()).await;
    let body = SENDER.body("a", "hold").into_bytes();
    let headers = SENDER.headers("a", "hold", &body);
    let mut gone = server.connect().await;
    gone.write_all(&request(&SENDER.path(), &headers, &body)).await.unwrap();
    handler.gate.reached().await;
    drop(gone);
    handler.gate.open();
    receiver.drained().await;
    assert_eq!(world.effects().await, ["a"]);
    assert_eq!(server.event(SENDER, "a", "hold").await.what(), (200, ALREADY));
    assert_eq!(world.effects().await, ["a"]);
}
